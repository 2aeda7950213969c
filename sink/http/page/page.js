"use strict";
/* Every text of the fleet goes into the document as text, never as HTML: records have their say in it. */

const REFRESH_MS = 5000;
const ROW_PX = 28;
const STALE_SECONDS = 15;
const PHASES = [
  ["PLANNED", "begin", "begin"], ["STARTED", "write", "write"], ["PREPARED", "commit", "commit"],
  ["COMMITTED", "settle", "settle"], ["ABORTED", "back", "roll back"],
];
const BAD = new Set(["halted", "no-coordinator", "not-committing", "zookeeper", "znode", "other-version", "kafka", "no-tree", "not-read", "refused", "service-overdue"]);
const WORDS = {
  ok: "ok", paused: "paused", behind: "falls behind", halted: "halted", "no-coordinator": "no coordinator",
  "not-committing": "does not commit", zookeeper: "ZooKeeper away", znode: "damaged znode", kafka: "Kafka away",
  "no-tree": "not begun", "not-read": "not read yet", "bad-records": "bad records", "service-failed": "table service failed", "service-overdue": "table service overdue",
  "falls-behind": "falls behind", "worker-gone": "worker gone", waits: "waits", silent: "does not answer", retention: "retention at risk", aborts: "aborts", catalog: "catalogue",
  configuration: "other configuration", refused: "cannot be used",
};
const byId = (id) => document.getElementById(id);

/* Elements */

/* Controls, directions and widths of zero, which a name or a reason of a stranger's may hold, are shown: those of
   sink/telemetry/shown.py. */
const OBEYED = new RegExp("["
  + "\\u0000-\\u0008\\u000a-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u061c\\u115f-\\u1160\\u17b4-\\u17b5\\u180b-\\u180f"
  + "\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u2800\\u3164\\uffa0\\ud800-\\udfff\\ufe00-\\ufe0f\\ufeff\\ufff0-\\ufffb"
  + "\\u{1bca0}-\\u{1bca3}\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}"
  + "]", "gu");

function shown(text) {
  return String(text).replace(OBEYED, (mark) => {
    const code = mark.codePointAt(0).toString(16);
    return code.length > 4 ? "\\U" + code.padStart(8, "0") : "\\u" + code.padStart(4, "0");
  });
}

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, shown(value));
  }
  const texts = children.flat().filter((child) => child !== null && child !== undefined);
  element.append(...texts.map((child) => child instanceof Node ? child : shown(child)));
  return element;
}

function say(element, text) {
  const wanted = shown(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

/* Makes the children of `parent` those of `items`, in order; an element of a key that stays is kept, and updated. */
function keyed(parent, items, key, create, update) {
  const known = new Map();
  for (const child of parent.children) known.set(child.dataset.key, child);
  let next = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    let child = known.get(name);
    if (child) known.delete(name);
    else {
      child = create(item);
      child.dataset.key = name;
    }
    if (child === next) next = next.nextElementSibling;
    else parent.insertBefore(child, next);
    update(child, item);
  }
  for (const child of known.values()) child.remove();
}

/* Figures */

const number = (value) => (value === null || value === undefined ? "?" : value.toLocaleString("en"));

function seconds(value) {
  if (value === null || value === undefined) return "?";
  if (value < 1) return value > 0 ? "<1 s" : "0 s";
  if (value < 120) return `${Math.round(value)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  return value < 172800 ? `${Math.round(value / 3600)} h` : `${Math.round(value / 86400)} d`;
}

const clock = (at) => (at ? new Date(at * 1000).toLocaleTimeString("en-GB") : "");
const moment = (at) => new Date(at * 1000).toLocaleString("en-GB");
function catches(item) {
  if (item.lag === 0) return "caught up";
  return item.grows ? "never: it grows" : item.catch_up_seconds === null ? "unknown" : seconds(item.catch_up_seconds);
}

const kind = (state) => (BAD.has(state) ? "bad" : state === "ok" ? "good" : "warn");
const word = (state) => WORDS[state] || state;

/* Charts */

const SVG = "http://www.w3.org/2000/svg";

function chart(name, large) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 100 24");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("class", large ? "chart large" : "chart");
  svg.dataset.name = name;
  for (const part of ["area", "line"]) {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("class", part);
    svg.append(path);
  }
  return svg;
}

function draw(svg, at, values, format) {
  const points = at.map((when, index) => [when, values[index]]).filter((point) => point[1] !== null);
  const most = points.reduce((high, point) => Math.max(high, point[1]), 0);
  const first = points.length ? points[0][0] : 0;
  const span = points.length ? Math.max(1, points[points.length - 1][0] - first) : 1;
  const line = points.map((point, index) => {
    const x = ((point[0] - first) / span) * 100;
    return `${index ? "L" : "M"}${x.toFixed(1)} ${(23 - (most ? point[1] / most : 0) * 22).toFixed(1)}`;
  }).join("");
  if (svg.dataset.line === line) return;
  svg.dataset.line = line;
  svg.children[1].setAttribute("d", line);
  svg.children[0].setAttribute("d", points.length > 1 ? `${line}L100 24L0 24Z` : "");
  const told = points.length ? `now ${format(points[points.length - 1][1])}, at most ${format(most)}` : "nothing known";
  svg.setAttribute("aria-label", `${svg.dataset.name}, last ${seconds(span)}: ${told}`);
}

/* The time that a transaction spent in each phase; the last one of an open transaction goes on until `until`. */
function phasesOf(entered, until) {
  const met = PHASES.filter((phase) => phase[0] in entered);
  const end = "ENDED" in entered ? entered.ENDED : until;
  return met.map(([name, style, words], index) => {
    const next = index + 1 < met.length ? entered[met[index + 1][0]] : end;
    return { style, words, seconds: Math.max(0, next - entered[name]), runs: !("ENDED" in entered) && index === met.length - 1 };
  });
}

function phases(entered, until, slim) {
  const parts = phasesOf(entered, until);
  const told = parts.map((part) => `${part.words} ${part.seconds.toFixed(1)} s`).join(", ");
  const bar = make("div", { class: slim ? "phases slim" : "phases", role: "img", "aria-label": told, title: told });
  for (const part of parts) {
    const piece = make("span", { class: part.runs ? `${part.style} running` : part.style });
    piece.style.flexGrow = Math.max(part.seconds, 0.001);
    bar.append(piece);
  }
  return bar;
}

/* Findings: halts and whatever else is wrong, with what to do */

const NAMED = 8;
const linkTo = (sink) => `#${encodeURIComponent(sink)}`;

/* Text between backquotes is code. */
const withCode = (text) => text.split("`").map((part, index) => (index % 2 ? make("code", {}, part) : part));

function alertOf(group, isNote) {
  const { kind: what, do: remedy, page } = group[0].finding;
  return make("div", { class: isNote ? "alert note" : "alert" },
    make("p", { class: "what" }, word(what)),
    group.slice(0, NAMED).map(({ finding, sink }) =>
      make("p", {}, sink ? make("a", { href: linkTo(sink) }, sink) : null, sink ? ": " : "", finding.text)),
    group.length > NAMED ? make("p", {}, `and ${group.length - NAMED} more`) : null,
    remedy ? make("p", {}, make("b", {}, "What to do: "), ...withCode(remedy)) : null,
    page ? make("p", { class: "faint" }, `Runbook: ${page}`) : null);
}

/* What needs the same remedy is one alert, however many sinks it is of. */
function showAlerts(place, findings, isNote) {
  const told = JSON.stringify(findings);
  if (place.dataset.told === told) return;
  place.dataset.told = told;
  const groups = new Map();
  for (const found of findings) {
    const key = `${found.finding.kind} ${found.finding.do}`;
    groups.set(key, [...(groups.get(key) || []), found]);
  }
  place.replaceChildren(...[...groups.values()].map((group) => alertOf(group, isNote)));
  place.hidden = findings.length === 0;
}

/* The fleet */

const order = {
  state: (a, b) => weight(b) - weight(a) || (b.waiting_seconds || 0) - (a.waiting_seconds || 0) || named(a, b),
  name: (a, b) => named(a, b),
  lag: (a, b) => (b.lag || 0) - (a.lag || 0) || named(a, b),
  waiting: (a, b) => (b.waiting_seconds || 0) - (a.waiting_seconds || 0) || named(a, b),
};
const named = (a, b) => (a.sink < b.sink ? -1 : a.sink > b.sink ? 1 : 0);
const weight = (sink) => (sink.state === "halted" ? 3 : BAD.has(sink.state) ? 2 : sink.state === "ok" ? 0 : 1);

function cell(name, ...children) {
  return make("td", { "data-name": name, class: "number" }, ...children);
}

function sinkRow(sink) {
  const text = () => make("span", {});
  return make("tr", {},
    make("td", {}, make("a", { href: linkTo(sink.sink) }, sink.sink)),
    make("td", {}, make("span", { class: "state" })),
    cell("lag", text(), chart("lag")), cell("waits", text(), chart("freshness")),
    cell("commit", text()), cell("catches up", text()), make("td", { "data-name": "by", class: "faint" }, text()));
}

function fillSinkRow(row, sink) {
  const [, state, lag, waiting, commit, catching, coordinator] = row.children;
  const label = state.firstElementChild;
  say(label, word(sink.state));
  label.className = `state ${kind(sink.state)}`;
  say(lag.firstElementChild, number(sink.lag));
  draw(lag.lastElementChild, sink.chart.at, sink.chart.lag, number);
  say(waiting.firstElementChild, seconds(sink.waiting_seconds));
  draw(waiting.lastElementChild, sink.chart.at, sink.chart.waiting, seconds);
  say(commit.firstElementChild, sink.commit_age === null ? "never" : `${seconds(sink.commit_age)} ago`);
  say(catching.firstElementChild, catches(sink));
  say(coordinator.firstElementChild, workerOf(sink.coordinator) || "none");
}

const workerOf = (incarnation) => (incarnation ? incarnation.slice(0, incarnation.lastIndexOf(":")) || incarnation : "");

function workersOf(sinks) {
  const workers = new Map();
  for (const sink of sinks) {
    for (const member of sink.workers || []) {
      const known = workers.get(member.worker) || { ...member, leads: [] };
      if (member.role === "coordinator") known.leads.push(sink.sink);
      if (member.state === "DRAINING") known.state = member.state;
      workers.set(member.worker, known);
    }
  }
  return [...workers.values()].sort((a, b) => (a.worker < b.worker ? -1 : 1));
}

function workerRow() {
  return make("tr", {}, make("td", {}), make("td", { "data-name": "state" }), make("td", { "data-name": "coordinates" }),
    make("td", { "data-name": "on", class: "faint" }), make("td", { "data-name": "version", class: "faint" }));
}

function fillWorkerRow(row, worker) {
  const led = worker.leads.length > 3 ? `${worker.leads.length} sinks` : worker.leads.join(", ") || "nothing";
  [worker.worker, worker.state.toLowerCase(), led, `${worker.host}, pid ${worker.pid}`, worker.version]
    .forEach((text, index) => say(row.children[index], text));
}

function showFleet(overview) {
  const sinks = overview.sinks;
  const ill = sinks.filter((sink) => !sink.healthy).length;
  const wanted = byId("filter").value.trim().toLowerCase();
  const shown = sinks.filter((sink) => !wanted || `${sink.sink} ${word(sink.state)}`.toLowerCase().includes(wanted));
  const workers = workersOf(sinks);
  say(byId("worker"), `${overview.worker}, ${overview.version}`);
  say(byId("summary"), `${sinks.length} ${sinks.length === 1 ? "sink" : "sinks"}, `
    + `${ill ? `${ill} not healthy` : "all healthy"}; ${workers.length} ${workers.length === 1 ? "worker" : "workers"}`);
  say(byId("updated"), `as of ${clock(overview.at)}`);
  document.title = ill ? `(${ill}) sink` : "sink";
  const findings = sinks.filter((sink) => !current() || sink.sink === current())
    .flatMap((sink) => sink.reasons.map((finding) => ({ finding, sink: sink.sink })));
  findings.sort((a, b) => (b.finding.kind === "halted") - (a.finding.kind === "halted"));
  showAlerts(byId("alerts"), findings, false);
  if (byId("fleet").hidden) return;
  showAlerts(byId("fleet-notes"), sinks.flatMap((sink) => sink.notes.map((finding) => ({ finding, sink: sink.sink }))), true);
  keyed(byId("sinks").tBodies[0], shown.sort(order[byId("order").value]), (sink) => sink.sink, sinkRow, fillSinkRow);
  keyed(byId("workers").tBodies[0], workers, (worker) => worker.worker, workerRow, fillWorkerRow);
}

/* Refreshing */

let overview = null;
let details = null;
let timer = 0;
let failedAt = 0;

function current() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return "";
  }
}

/* Before anything is known, it may be. */
const isHosted = (sink) => Boolean(sink) && (!overview || overview.sinks.some((known) => known.sink === sink));

async function load(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" } });
  const document = await answer.json();
  if (!answer.ok) throw new Error(document.error || `${path} answered ${answer.status}`);
  return document;
}

async function refresh() {
  clearTimeout(timer);
  const began = performance.now();
  const sink = current();
  try {
    const [all, one] = await Promise.all([
      load("overview"), isHosted(sink) ? load(`status?sink=${encodeURIComponent(sink)}`).catch((error) => ({ error })) : null]);
    overview = all;
    details = one && one.sinks ? one.sinks[0] : one;
    failedAt = 0;
    show();
    document.documentElement.dataset.refreshMs = (performance.now() - began).toFixed(0);
  } catch (error) {
    failedAt = failedAt || Date.now() / 1000;
    say(byId("offline"), `This worker does not answer since ${clock(failedAt)}; what follows is older. It is asked again.`);
    byId("offline").hidden = false;
  }
  timer = setTimeout(refresh, document.hidden ? 12 * REFRESH_MS : REFRESH_MS);
}

function show() {
  const began = performance.now();
  const old = overview.age > STALE_SECONDS;
  if (old) say(byId("offline"), `The last reading of the fleet is ${seconds(overview.age)} old: ZooKeeper does not answer this worker.`);
  byId("offline").hidden = !old;
  const sink = current();
  byId("fleet").hidden = Boolean(sink);
  byId("sink").hidden = !sink;
  showFleet(overview);
  if (sink) showSink(byId("sink"), sink, details, overview);
  /* Read by tests: how often and how fast the page was drawn. */
  const root = document.documentElement.dataset;
  root.shown = String(Number(root.shown || 0) + 1);
  root.shownMs = (performance.now() - began).toFixed(1);
  if (!root.firstMs) root.firstMs = performance.now().toFixed(0);
}

function move(step) {
  const links = [...document.querySelectorAll("#sinks tbody a")];
  if (!links.length) return;
  const at = links.indexOf(document.activeElement);
  links[Math.min(links.length - 1, Math.max(0, at + step))].focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
  if (event.key === "Escape" && typing) event.target.blur();
  else if (event.key === "Escape" && current()) location.hash = "";
  else if (typing) return;
  else if (event.key === "/") {
    const filter = byId(current() ? "partition-filter" : "filter");
    if (filter) filter.focus();
    event.preventDefault();
  } else if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
});
window.addEventListener("hashchange", () => {
  details = null;
  if (overview) show();
  window.scrollTo(0, 0);
  byId("main").focus();
  refresh();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
byId("filter").addEventListener("input", () => overview && show());
byId("order").addEventListener("change", () => overview && show());
