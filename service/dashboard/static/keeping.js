// Pin and evict, with the token that the browser was given; a refusal is told in words.
"use strict";
{
  const place = document.getElementById("keeping");
  const state = document.getElementById("keeping-state");
  const plan = `/v1/plans/${place.dataset.key}`;
  const say = (words, isBad) => {
    state.textContent = words;
    state.className = isBad ? "danger" : "muted";
  };
  const ask = async (method, path) => {
    say("Asking …");
    try {
      const answer = await fetch(path, { method });
      if (answer.ok) return true;
      const told = await answer.json().catch(() => ({}));
      const hint = told.hint ? ` ${told.hint[0].toUpperCase()}${told.hint.slice(1)}.` : "";
      say(`${told.title ?? `HTTP ${answer.status}`}: ${told.detail ?? ""}.${hint}`, true);
    } catch (error) {
      say(`The service gave no answer (${error.message}). Try again.`, true);
    }
    return false;
  };
  const acts = {
    pin: async () => {
      if (await ask(place.dataset.pinned === "yes" ? "DELETE" : "PUT", `${plan}/pin`)) location.reload();
    },
    // Asked twice in place: a dialog would take the keyboard away.
    evict: async (button) => {
      if (!button.dataset.sure) {
        button.dataset.sure = "yes";
        button.textContent = "Evict: builds will miss it. Sure?";
        setTimeout(() => {
          delete button.dataset.sure;
          button.textContent = "Evict";
        }, 6000);
        return;
      }
      if (await ask("DELETE", plan)) location.href = "/cache";
    },
  };
  for (const button of place.querySelectorAll("button[data-do]")) {
    button.hidden = false;
    button.addEventListener("click", () => acts[button.dataset.do](button));
  }
}
