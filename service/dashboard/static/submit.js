// Drop a model, hand it in, and go to the page where it can be watched.
"use strict";
{
  const form = document.getElementById("submit");
  const file = document.getElementById("model");
  const drop = form.querySelector(".drop");
  const state = document.getElementById("submit-state");
  const title = document.getElementById("drop-title");
  const note = document.getElementById("drop-note");
  const target = document.getElementById("target");

  const say = (words, isBad) => {
    state.textContent = words;
    state.className = isBad ? "problem" : "muted";
  };
  const size = (bytes) =>
    bytes >= 2 ** 20 ? `${(bytes / 2 ** 20).toFixed(1)} MiB` : `${Math.max(1, Math.round(bytes / 1024))} KiB`;
  const show = () => {
    const chosen = file.files[0];
    title.textContent = chosen ? chosen.name : "Drop an ONNX file here, or choose one";
    note.textContent = chosen ? size(chosen.size) : ".onnx, or .json in the form fuseplan.graph/1";
    drop.classList.toggle("has-file", Boolean(chosen));
  };
  file.addEventListener("change", show);
  for (const kind of ["dragover", "dragenter"])
    drop.addEventListener(kind, (event) => {
      event.preventDefault();
      drop.classList.add("over");
    });
  for (const kind of ["dragleave", "drop"])
    drop.addEventListener(kind, () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    if (!event.dataTransfer.files.length) return;
    file.files = event.dataTransfer.files;
    show();
  });

  const worker = () => {
    const chosen = target.selectedOptions[0];
    document.getElementById("worker-note").hidden = !chosen || chosen.dataset.workers !== "0";
  };
  target.addEventListener("change", worker);
  worker();

  const shapes = (text) => {
    const found = {};
    for (const part of text.split(/[,;\s]+/).filter(Boolean)) {
      const [name, length] = part.split("=");
      if (!name || !/^\d+$/.test(length ?? "")) throw new Error(`“${part}” is no dimension: write batch=8`);
      found[name] = Number(length);
    }
    return found;
  };

  const ask = async () => {
    const chosen = file.files[0];
    const given = new FormData(form);
    const asked = {
      target: given.get("target"), mode: given.get("mode"), title: chosen.name,
      budget_seconds: Number(given.get("seconds")), budget_trials: Number(given.get("trials")),
      options: { shapes: shapes(given.get("shapes")) },
    };
    if (!Object.keys(asked.options.shapes).length) asked.options = {};
    if (chosen.name.endsWith(".json")) {
      const body = JSON.stringify({ ...asked, graph: JSON.parse(await chosen.text()) });
      return fetch("/v1/plans", { method: "POST", headers: { "Content-Type": "application/json" }, body });
    }
    const query = new URLSearchParams({ ...asked, options: JSON.stringify(asked.options) });
    return fetch(`/v1/plans?${query}`, { method: "POST", headers: { "Content-Type": "application/onnx" }, body: chosen });
  };

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = form.querySelector("button[type=submit]");
    button.disabled = true;
    say("Reading and planning …");
    try {
      const answer = await ask();
      const told = await answer.json();
      if (!answer.ok) {
        const hint = told.hint ? ` ${told.hint[0].toUpperCase()}${told.hint.slice(1)}.` : "";
        throw new Error(`${told.title ?? `HTTP ${answer.status}`}: ${told.detail ?? ""}.${hint}`);
      }
      location.href = told.job ? `/jobs/${told.job}` : `/plans/${told.plan_key}`;
    } catch (error) {
      say(error.message, true);
      button.disabled = false;
    }
  });
}
