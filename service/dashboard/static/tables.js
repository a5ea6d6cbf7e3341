// Every table can be kept as CSV or JSON: raw numbers where a cell has them.
"use strict";
{
  const clean = (text) => text.replace(/\s+/g, " ").trim();
  const value = (cell) => {
    const raw = cell.dataset.v;
    if (raw !== undefined) return raw === "None" || raw === "" ? null : Number.isNaN(Number(raw)) ? raw : Number(raw);
    const copy = cell.cloneNode(true);
    for (const part of copy.querySelectorAll("button")) part.remove();
    for (const part of copy.querySelectorAll("code[title]")) part.textContent = part.title;
    const told = clean(copy.textContent) || copy.querySelector("[aria-label]")?.getAttribute("aria-label") || copy.querySelector("input")?.checked;
    return told ?? "";
  };
  const read = (table) => {
    const names = [];
    for (const head of table.tHead?.rows[0]?.cells ?? [])
      for (let i = 0; i < head.colSpan; i += 1) names.push((clean(head.textContent) || "what") + (i ? ` ${i + 1}` : ""));
    const rows = [...table.tBodies].flatMap((body) => [...body.rows]).map((row) => [...row.cells].map(value));
    const wide = Math.max(0, ...rows.map((row) => row.length));
    while (names.length < wide) names.push(names.length ? `value ${names.length}` : "what");
    return { names, rows };
  };
  // A cell that a spreadsheet never takes for a formula.
  const safe = (told) => {
    if (typeof told !== "string") return String(told ?? "");
    const plain = /^[=+\-@]/.test(told) ? `'${told}` : told;
    return /[",\n]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
  };
  const csv = ({ names, rows }) => [names, ...rows].map((row) => row.map(safe).join(",")).join("\n") + "\n";
  const json = ({ names, rows }) => JSON.stringify(rows.map((row) => Object.fromEntries(row.map((told, i) => [names[i], told]))), null, 1);
  const kinds = { csv: ["text/csv", csv], json: ["application/json", json] };

  const save = (table, kind, label) => {
    const [type, write] = kinds[kind];
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([write(read(table))], { type }));
    link.download = `${label.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "")}.${kind}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };

  const offer = () => {
    for (const table of document.querySelectorAll("main table:not(.prices)")) {
      const room = table.closest(".scroll") ?? table;
      if (table.closest("form") || room.nextElementSibling?.classList.contains("table-tools")) continue;
      const label = room.getAttribute("aria-label") ?? clean(room.closest("section, div")?.querySelector("h2, h3")?.textContent ?? "table");
      const tools = document.createElement("p");
      tools.className = `table-tools${/narrow/.test(table.className) ? " left" : ""}`;
      for (const kind of Object.keys(kinds)) {
        const button = document.createElement("button");
        button.type = "button";
        button.className = "quiet";
        button.textContent = kind.toUpperCase();
        button.setAttribute("aria-label", `Download the table ${label} as ${kind.toUpperCase()}`);
        button.addEventListener("click", () => save(table, kind, label));
        tools.append(button);
      }
      room.after(tools);
    }
  };
  offer();
  document.addEventListener("htmx:after:swap", offer);
}
