// Keeps the page live: sections that changed come by one event stream, as HTML that the node has drawn and escaped. Everything
// on the page is there without this script; it adds the movement, the reading of charts by pointer, and operators' buttons.
"use strict";

const SILENT_MS = 5000;
const byId = (id) => document.getElementById(id);
const live = byId("live");
let heard = 0;

function say(state, words) {
  live.className = state;
  if (live.textContent !== words) live.textContent = words;
}

// Makes `into` like `from`, touching only what differs, so that a selection, the focus and an unfolded part stay.
function morph(into, from) {
  const was = [...into.childNodes];
  const now = [...from.childNodes];
  now.forEach((next, at) => {
    const old = was[at];
    if (!old) into.append(next);
    else if (old.nodeName !== next.nodeName || old.id !== next.id) old.replaceWith(next);
    else if (next.nodeType === Node.TEXT_NODE) {
      if (old.data !== next.data) old.data = next.data;
    } else {
      attributes(old, next);
      morph(old, next);
    }
  });
  was.slice(now.length).forEach((old) => old.remove());
}

function attributes(old, next) {
  const folds = old.nodeName === "DETAILS";
  for (const { name, value } of next.attributes) {
    if (!(folds && name === "open") && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (!(folds && name === "open") && !next.hasAttribute(name)) old.removeAttribute(name);
  }
}

const stream = new EventSource("/events");
stream.onmessage = (event) => {
  heard = Date.now();
  for (const [id, html] of Object.entries(JSON.parse(event.data))) {
    const fresh = document.createElement("template");
    fresh.innerHTML = html;
    if (byId(id)) morph(byId(id), fresh.content);
  }
  say("good", "live");
  point();
};
stream.onerror = () => say("bad", "this node does not answer; trying again");
setInterval(() => {
  if (stream.readyState === EventSource.OPEN && heard && Date.now() - heard > SILENT_MS) {
    say("warn", `nothing new for ${Math.round((Date.now() - heard) / 1000)} s`);
  }
}, 1000);

// Charts: what the line says under the pointer.
const tip = byId("tip");
let pointed = null;

// "*2|7*3|8": nothing twice, then 7 three times, then 8.
function texts(chart) {
  return chart.dataset.texts.split("|").flatMap((part) => {
    const [text, times] = part.split("*");
    return Array(Number(times || 1)).fill(text);
  });
}

function point() {
  const chart = pointed && byId(pointed.id);
  tip.hidden = !chart;
  if (!chart) return;
  const plot = chart.querySelector(".plot").getBoundingClientRect();
  const all = texts(chart);
  const share = Math.min(1, Math.max(0, (pointed.x - plot.left) / plot.width));
  const at = Math.round(share * (all.length - 1));
  tip.textContent = `${all[at] || "not known"}, ${all.length - at} s ago`;
  tip.style.left = `${Math.min(plot.left + share * plot.width, innerWidth - tip.offsetWidth - 8) + scrollX}px`;
  tip.style.top = `${plot.top + scrollY}px`;
  tip.style.height = `${plot.height}px`;
}

addEventListener("pointermove", (event) => {
  const chart = event.target.closest ? event.target.closest(".chart") : null;
  if (!chart && !pointed) return;
  pointed = chart && { id: chart.id, x: event.clientX };
  point();
});

// Operators: the token stays in this tab, and goes with each command in a header of its own.
const form = byId("operator");
let token = "";
if (form) {
  form.hidden = false;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    token = form.elements.token.value.trim();
    document.body.classList.toggle("operator", token !== "");
    byId("said").textContent = "";
  });
  document.addEventListener("click", (event) => {
    const command = event.target.dataset && event.target.dataset.do;
    if (command && token) operate(command, event.target.textContent);
  });
}

async function operate(command, name) {
  const said = byId("said");
  said.textContent = `${name} ...`;
  try {
    const headers = { "content-type": "application/json", "x-understudy-token": token };
    const answer = await fetch("/operate", { method: "POST", headers, body: command });
    said.textContent = (await answer.text()).trim();
    said.className = answer.ok ? "" : "bad";
    if (answer.status === 403) document.body.classList.remove("operator");
  } catch {
    said.textContent = "this node does not answer";
    said.className = "bad";
  }
}
