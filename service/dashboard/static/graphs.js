// What the drawings of partitions share: parts of a page, and files of a graph.
"use strict";
Object.assign(fuseplan, (() => {
  const { colour } = fuseplan;

  const element = (tag, text, kind) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (kind) made.className = kind;
    return made;
  };
  const press = (text, act, kind) => {
    const button = element("button", text, kind);
    button.type = "button";
    button.addEventListener("click", act);
    return button;
  };

  // The same boxes and arrows as lines of text; the library itself only makes pixels.
  const svgOf = (graph) => {
    const room = 16;
    const area = graph.elements().boundingBox();
    const escape = (text) => String(text ?? "").replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
    const lines = (x, y, told, size, tint) => told.filter(Boolean).map((line, i) =>
      `<text x="${x}" y="${y + (i - (told.length - 1) / 2) * size * 1.35}" font-size="${size}" fill="${tint}" text-anchor="middle" dominant-baseline="central">${escape(line)}</text>`).join("");
    const box = (node) => {
      const at = node.boundingBox({ includeLabels: false, includeOverlays: false });
      const data = node.data();
      const shape = `<rect x="${at.x1}" y="${at.y1}" width="${at.w}" height="${at.h}" rx="5" fill="${colour(node.isParent() ? "tint" : "raised")}" stroke="${colour(data.family) || colour("library")}" stroke-width="1.5"/>`;
      const told = data.inner ? [data.label] : [`${data.label}   ${data.time}`, node.isParent() ? "" : data.short];
      return shape + lines((at.x1 + at.x2) / 2, node.isParent() ? at.y1 + 8 : (at.y1 + at.y2) / 2, told, data.inner ? 10 : 11, colour("ink"));
    };
    const arrow = (edge) => {
      const [a, b, middle] = [edge.sourceEndpoint(), edge.targetEndpoint(), edge.midpoint()];
      const control = (edge.controlPoints() ?? [])[0] ?? middle;
      const tint = colour(edge.data("kept") ? "good" : "faint");
      const path = `<path d="M${a.x} ${a.y} Q${control.x} ${control.y} ${b.x} ${b.y}" fill="none" stroke="${tint}" stroke-width="1.3" marker-end="url(#${edge.data("kept") ? "kept" : "cut"})"${edge.data("cut") ? ' stroke-dasharray="6 3"' : ""}/>`;
      return path + lines(middle.x, middle.y, edge.data("cut") ? [edge.data("label"), edge.data("saves")] : [], 9, colour("soft"));
    };
    const marker = (id, tint) => `<marker id="${id}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" fill="${tint}"/></marker>`;
    const parents = graph.nodes(":parent"), others = graph.nodes(":childless");
    return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="${area.x1 - room} ${area.y1 - room} ${area.w + 2 * room} ${area.h + 2 * room}" width="${Math.ceil(area.w + 2 * room)}" height="${Math.ceil(area.h + 2 * room)}" font-family="system-ui, sans-serif">`
      + `<defs>${marker("cut", colour("faint"))}${marker("kept", colour("good"))}</defs><rect x="${area.x1 - room}" y="${area.y1 - room}" width="100%" height="100%" fill="${colour("raised")}"/>`
      + parents.map(box).join("") + graph.edges().map(arrow).join("") + others.map(box).join("") + "</svg>";
  };

  const pngOf = (graph) =>
    graph.png({ output: "blob-promise", full: true, scale: 2, maxWidth: 6000, maxHeight: 6000, bg: colour("raised") });

  // Names of nodes are paths: where room is short their ends tell them apart.
  const brief = (text) => {
    if (text.length <= 28) return text;
    const [first, ...rest] = text.split(", ");
    const [, name, hidden] = /^(.*?)(?: \+(\d+))?$/.exec(rest.length ? first : text);
    const more = rest.length + Number(/ \+(\d+)$/.exec(text)?.[1] ?? hidden ?? 0);
    const room = more ? 23 : 27;
    const end = name.slice(-room), slash = end.indexOf("/"), dot = end.indexOf(".");
    const at = slash >= 0 ? slash : dot + 1;
    const tail = name.length > room ? `…${end.slice(at)}` : name;
    return more ? `${tail} +${more}` : tail;
  };

  return { brief, element, press, svgOf, pngOf };
})());
