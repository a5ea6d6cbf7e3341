// What every page has: the theme button and copy buttons.
"use strict";
{
  const root = document.documentElement;
  const dark = () =>
    root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;

  const button = document.getElementById("theme");
  const name = () => {
    button.textContent = dark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Use ${dark() ? "light" : "dark"} colours`);
  };
  button.hidden = false;
  name();
  const told = () => {
    name();
    document.dispatchEvent(new CustomEvent("fuseplan:theme"));
  };
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    localStorage.setItem("fuseplan-theme", root.dataset.theme);
    told();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", told);

  // A second solution of the same problem takes a while: its bound is shown until then.
  const solve = async (place) => {
    const { solved } = place.dataset;
    delete place.dataset.solved;
    place.replaceChildren("Solving for the price …");
    const answer = await fetch(solved);
    const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (answer.ok) place.replaceChildren(...parsed.body.childNodes);
    else place.replaceChildren(`There is no answer (HTTP ${answer.status}).`);
  };
  const solveAll = () => {
    for (const place of document.querySelectorAll("[data-solved]")) solve(place);
  };
  solveAll();
  document.addEventListener("fuseplan:part", solveAll);

  const showCopyButtons = () => {
    for (const copy of document.querySelectorAll("button[data-copy]")) copy.hidden = false;
  };
  if (navigator.clipboard) {
    showCopyButtons();
    document.addEventListener("htmx:after:swap", showCopyButtons);
    document.addEventListener("click", async (event) => {
      const copy = event.target.closest("button[data-copy]");
      if (!copy) return;
      await navigator.clipboard.writeText(copy.dataset.copy);
      copy.textContent = "Copied";
      setTimeout(() => (copy.textContent = "Copy"), 1500);
    });
  }
}
