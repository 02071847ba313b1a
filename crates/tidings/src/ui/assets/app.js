// What makes the pages more comfortable. Every page can be read and every form sent without it.
"use strict";

// Times in the reader's zone; the exact value stays in the title.
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const brief = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hour12: false });
const date = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "numeric" });
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });

function localise(root) {
  const now = new Date();
  for (const element of root.querySelectorAll("time[datetime]")) {
    const at = new Date(element.dateTime);
    if (isNaN(at)) continue;
    const today = at.toDateString() === now.toDateString();
    if (element.dataset.form === "short") {
      element.textContent = today ? brief.format(at) : `${day.format(at)} ${brief.format(at)}`;
    } else {
      element.textContent = today ? clock.format(at) : `${date.format(at)} ${clock.format(at)}`;
    }
  }
}

function fragment(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  localise(template.content);
  return template.content;
}

// The live list: rows come ready-made from the server, newest on top.
function follow(table) {
  const body = table.tBodies[0];
  const state = document.getElementById("live-state");
  const most = 200;
  const stream = new EventSource(table.dataset.stream);
  const say = (text, on) => { state.textContent = text; state.classList.toggle("on", on); };
  stream.onopen = () => say("Live: new events appear at the top.", true);
  stream.onerror = () => say("Not connected; trying again…", false);
  stream.addEventListener("row", (event) => {
    const row = fragment(`<table><tbody>${event.data}</tbody></table>`).querySelector("tr");
    row.classList.add("new");
    body.prepend(row);
    while (body.rows.length > most) body.deleteRow(-1);
    document.querySelector(".empty")?.remove();
  });
  stream.addEventListener("gap", (event) => say(`Live. ${event.data} events came too fast to be shown.`, true));
}

// The overview's figures and the inbox, brought up to date while nobody points at them.
function refresh(element) {
  const stream = new EventSource(element.dataset.refresh);
  stream.addEventListener("figures", (event) => {
    if (document.hidden || element.matches(":hover") || element.contains(document.activeElement)) return;
    element.replaceChildren(fragment(event.data));
  });
}

// The rule editor: the pattern is tried while it is written.
function tryPattern(area) {
  const verdict = document.getElementById("verdict");
  let waiting, latest = 0;
  const ask = async () => {
    const turn = ++latest;
    const body = new URLSearchParams({ form: area.form.elements.namedItem("form").value, pattern: area.value });
    try {
      const answer = await fetch(area.dataset.try, { method: "POST", body, headers: { "x-fragment": "1" } });
      const text = await answer.text();
      if (turn !== latest) return;
      verdict.replaceChildren(answer.ok ? fragment(text) : "The pattern cannot be tried right now.");
    } catch {
      if (turn === latest) verdict.textContent = "The server cannot be reached.";
    }
  };
  area.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(ask, 250); });
  ask();
}

localise(document);
const live = document.getElementById("live");
if (live) follow(live);
document.querySelectorAll("[data-refresh]").forEach(refresh);
const pattern = document.querySelector("textarea[data-try]");
if (pattern) tryPattern(pattern);
