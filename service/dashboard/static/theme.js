// Runs before the page is drawn, so that a chosen theme never flashes.
"use strict";
{
  const chosen = localStorage.getItem("fuseplan-theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
}
