"use strict";
// The page is complete without this script, which only reads it again.
const interval = 3000;
const byId = (id) => document.getElementById(id);
const button = byId("pause");
let paused = false;
button.hidden = false;
button.addEventListener("click", () => {
  paused = !paused;
  button.setAttribute("aria-pressed", String(paused));
});
// replace changes an element only if it differs, so that readers hear only what has changed.
const replace = (shown, fresh) => {
  if (shown.innerHTML === fresh.innerHTML) return;
  const focused = shown.contains(document.activeElement) && document.activeElement.getAttribute("href");
  shown.innerHTML = fresh.innerHTML;
  if (focused) Array.from(shown.querySelectorAll("a")).find((a) => a.getAttribute("href") === focused)?.focus();
};
const ids = (root) => Array.from(root.querySelectorAll("main > [id]"), (one) => one.id);
const update = async () => {
  const response = await fetch(location.pathname, { cache: "no-store" });
  if (!response.headers.get("Content-Type")?.startsWith("text/html")) throw new Error(await response.text());
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
  if (String(ids(document)) !== String(ids(fresh))) replace(byId("main"), fresh.getElementById("main"));
  for (const id of ["as-of", ...ids(document)]) replace(byId(id), fresh.getElementById(id));
};
const loop = async () => {
  if (!paused && !document.hidden) {
    try {
      await update();
      byId("note").textContent = "";
    } catch (error) {
      byId("note").textContent = "Not updated: " + error.message;
    }
  }
  setTimeout(loop, interval);
};
setTimeout(loop, interval);
