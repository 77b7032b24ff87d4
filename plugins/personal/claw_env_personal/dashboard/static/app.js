"use strict";
// Updates of the first page, and a question before what cannot be taken back.
// All texts come escaped from the server; without this script every page works as it was loaded.

for (const form of document.querySelectorAll("form[data-ask]")) {
  form.addEventListener("submit", (event) => {
    if (!window.confirm(form.dataset.ask)) event.preventDefault();
  });
}

const list = document.getElementById("turns");
const MOST = 60;

function place(change) {
  const holder = document.createElement("template");
  holder.innerHTML = change.html;
  const row = holder.content.firstElementChild;
  const known = document.getElementById(change.id);
  const hadFocus = known !== null && known === document.activeElement;
  if (known) known.replaceWith(row);
  else {
    document.getElementById("none")?.remove();
    list.prepend(row);
    while (list.children.length > MOST) list.lastElementChild.remove();
  }
  row.classList.add("fresh");
  if (hadFocus) row.focus();
}

function tell(status) {
  const counts = Object.entries(status.turns).map(([state, n]) => `${n} ${state}`);
  const version = document.getElementById("version");
  if (version.textContent !== String(status.version)) {
    document.getElementById("new").hidden = false;
  }
  version.textContent = status.version;
  document.getElementById("trainer").textContent = status.trainer;
  document.getElementById("counts").textContent = counts.join(", ") || "no turns yet";
}

if (list && document.getElementById("status")) {
  const source = new EventSource("/events");
  source.addEventListener("turn", (event) => place(JSON.parse(event.data)));
  source.addEventListener("status", (event) => tell(JSON.parse(event.data)));
}
