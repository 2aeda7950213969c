/* One sink: figures, open transactions, partitions, last transactions, bad records, the table */

let shownSink = "";
let tables = null;

function showSink(place, name, status, all) {
  const line = all.sinks.find((sink) => sink.sink === name);
  if (shownSink !== name || !place.firstElementChild) {
    shownSink = name;
    tables = null;
    place.replaceChildren(...frame(name));
    byId("partition-filter").addEventListener("input", () => details && showPartitions(details));
    byId("partition-order").addEventListener("change", () => details && showPartitions(details));
    byId("partitions").addEventListener("scroll", () => drawPartitions());
    byId("look").addEventListener("click", () => look(name));
  }
  if (!line) {
    showAlerts(byId("notes"), [{ finding: { kind: "unknown", text: `This worker hosts no sink ${name}.`, do: "", page: "" } }], true);
    return;
  }
  showAlerts(byId("notes"), line.notes.map((finding) => ({ finding })), true);
  const state = byId("sink-state");
  say(state, word(line.state));
  state.className = `state ${kind(line.state)}`;
  say(byId("sink-coordinator"), `coordinated by ${workerOf(line.coordinator) || "nobody"}, table ${line.table || "unknown"}`);
  say(byId("lag"), number(line.lag));
  say(byId("waiting"), seconds(line.waiting_seconds));
  say(byId("commit"), line.commit_age === null ? "never" : `${seconds(line.commit_age)} ago`);
  say(byId("catching"), catches(line));
  draw(byId("lag-chart"), line.chart.at, line.chart.lag, number);
  draw(byId("waiting-chart"), line.chart.at, line.chart.waiting, seconds);
  if (status && status.error) say(byId("partition-count"), String(status.error));
  if (!status || !status.partitions) return;
  say(byId("committed"), `transaction ${number(status.committed)}, epoch ${status.epoch}`);
  showOpen(status, all.at);
  showPartitions(status);
  showHistory(status);
  showServices(status);
}

function card(title, id, chartId, small) {
  return make("div", { class: "card" }, make("h3", {}, title), make("p", { id, class: "number" }),
    small ? make("p", { id: small, class: "small" }) : null, chartId ? large(title.toLowerCase(), chartId) : null);
}

function large(name, id) {
  const svg = chart(name, true);
  svg.id = id;
  return svg;
}

function frame(name) {
  const legend = make("p", { class: "legend" });
  for (const [, style, words] of PHASES) legend.append(make("i", { class: style }), words);
  return [
    make("p", {}, make("a", { href: "#" }, "\u2190 all sinks")),
    make("h2", { id: "sink-title" }, name, " ", make("span", { id: "sink-state", class: "state" })),
    make("p", { id: "sink-coordinator", class: "faint" }),
    make("div", { id: "notes", hidden: true }),
    make("div", { class: "cards" }, card("Lag, in offsets", "lag", "lag-chart"),
      card("Oldest record waits", "waiting", "waiting-chart"),
      card("Last commit", "commit", null, "committed"), card("Caught up in", "catching")),
    make("h3", {}, "Open transactions"), make("div", { id: "open" }), legend,
    make("div", { class: "bar" }, make("h2", {}, "Partitions ", make("span", { id: "partition-count", class: "faint" })),
      make("label", {}, "Filter ", make("input", { id: "partition-filter", type: "search", placeholder: "topic-partition" })),
      make("label", {}, "Order ", make("select", { id: "partition-order" },
        make("option", { value: "lag" }, "by lag"), make("option", { value: "waiting_seconds" }, "by freshness"),
        make("option", { value: "name" }, "by name")))),
    make("div", { id: "partitions", class: "list", role: "table", tabindex: "0", "aria-label": "Partitions" },
      make("div", { class: "head", role: "row" }, ...COLUMNS.map(([title, , wide]) =>
        make("span", { role: "columnheader", class: wide ? "wide" : "" }, title))),
      make("div", { class: "rows", role: "rowgroup" })),
    make("h2", {}, "Last transactions"),
    make("table", { id: "history" },
      make("thead", {}, make("tr", {}, ...["Number", "Outcome", "Ended", "Records", "Bad", "Phases", "Reason"]
        .map((title) => make("th", { scope: "col" }, title)))),
      make("tbody", {})),
    make("h2", {}, "Bad records and the table"),
    make("p", { class: "faint" }, "They are read from the store when you ask for them. ",
      make("button", { id: "look", type: "button" }, "Look now")),
    make("div", { id: "tables" }),
    make("div", { id: "services" }),
  ];
}

function showOpen(status, now) {
  const place = byId("open");
  const told = JSON.stringify([status.transactions, now]);
  if (place.dataset.told === told) return;
  place.dataset.told = told;
  place.replaceChildren(...(status.transactions.length ? status.transactions.map((open) => make("div", {},
    make("p", { class: "faint" }, `${open.number}, attempt ${open.attempt}, in ${open.phase} for ${seconds(open.phase_seconds)}: `
      + `${number(open.offsets)} offsets in ${number(open.slices)} slices, `
      + `${open.reported} of ${open.participants} participants have reported${open.instant ? `, instant ${open.instant}` : ""}`),
    open.reason ? make("p", {}, open.reason) : null, phases(open.entered, now, false)))
    : [make("p", { class: "faint" }, "None: nothing waits, or the interval is not over.")]));
}

/* Partitions: only the rows in sight are in the document, however many there are. */

const COLUMNS = [
  ["Partition", (p) => `${p.topic}-${p.partition}`, false],
  ["Lag", (p) => number(p.lag), false],
  ["Catches up", catches, false],
  ["Oldest waits", (p) => seconds(p.waiting_seconds), true],
  ["Lands/s", (p) => number(p.landed_per_second), true],
  ["Committed", (p) => number(p.committed), true],
  ["Log end", (p) => number(p.log_end), true],
  ["Held back", (p) => number(p.held_back), true],
];
let partitions = [];

function showPartitions(status) {
  const wanted = byId("partition-filter").value.trim().toLowerCase();
  const by = byId("partition-order").value;
  const all = status.partitions;
  partitions = wanted ? all.filter((p) => `${p.topic}-${p.partition}`.toLowerCase().includes(wanted)) : [...all];
  if (by !== "name") partitions.sort((a, b) => (b[by] || 0) - (a[by] || 0));
  const behind = all.filter((p) => p.lag > 0).length;
  say(byId("partition-count"), `${number(partitions.length)} of ${number(all.length)}, ${number(behind)} with lag`);
  drawPartitions();
}

function drawPartitions() {
  const list = byId("partitions");
  const rows = list.lastElementChild;
  rows.style.height = `${partitions.length * ROW_PX}px`;
  list.setAttribute("aria-rowcount", String(partitions.length + 1));
  const first = Math.max(0, Math.floor(list.scrollTop / ROW_PX) - 4);
  const shown = partitions.slice(first, first + Math.ceil(list.clientHeight / ROW_PX) + 8);
  while (rows.children.length > shown.length) rows.lastElementChild.remove();
  while (rows.children.length < shown.length) {
    rows.append(make("div", { class: "row", role: "row" }, ...COLUMNS.map(([, , wide]) =>
      make("span", { role: "cell", class: wide ? "number wide" : "number" }))));
  }
  shown.forEach((partition, index) => {
    const row = rows.children[index];
    row.style.top = `${(first + index) * ROW_PX}px`;
    row.setAttribute("aria-rowindex", String(first + index + 2));
    COLUMNS.forEach(([, text], column) => say(row.children[column], text(partition)));
  });
}

function showHistory(status) {
  keyed(byId("history").tBodies[0], status.history, (ended) => `${ended.number}/${ended.batch}`, (ended) => {
    const aborted = ended.outcome === "ABORTED";
    return make("tr", {}, cell("transaction", String(ended.number)),
      make("td", {}, make("span", { class: `state ${aborted ? "bad" : "good"}` }, ended.outcome.toLowerCase())),
      cell("ended", clock(ended.ended)), cell("records", number(ended.records)), cell("bad", number(ended.errors)),
      make("td", {}, phases(ended.entered, ended.ended, true)), make("td", { class: "reason" }, ended.reason));
  }, () => {});
}

function showServices(status) {
  const place = byId("services");
  const told = JSON.stringify([status.services, status.catalog, status.audit]);
  if (place.dataset.told === told) return;
  place.dataset.told = told;
  const parts = [];
  if (status.services) {
    const ended = status.services.ended ? `, ${clock(status.services.ended)}, on ${status.services.worker}` : "";
    parts.push(make("h3", {}, `Table services${ended}`));
    if (status.services.due) parts.push(make("p", {}, `A run has been due since ${moment(status.services.due)}, and has not ended.`));
    for (const service of status.services.services) {
      parts.push(make("p", {}, `${service.name}: ${service.seconds.toFixed(1)} s`,
        service.instant ? `, instant ${service.instant}` : service.reason ? "" : ", nothing to do",
        service.reason ? make("span", { class: "state bad" }, ` failed: ${service.reason}`) : null,
        service.since ? `, due since ${moment(service.since)}` : ""));
    }
  }
  if (status.catalog) {
    parts.push(make("h3", {}, `Catalogue: ${status.catalog.catalog}`),
      make("p", {}, status.catalog.failures ? `failed ${status.catalog.failures} times in a row: ${status.catalog.reason}`
        : `${status.catalog.behind} transactions behind`));
  }
  if (status.audit) {
    parts.push(make("h3", {}, `Audit, ${moment(status.audit.ended)}`),
      make("p", { class: status.audit.held ? "" : "state bad" }, status.audit.summary));
  }
  place.replaceChildren(...parts);
}

async function look(name) {
  const place = byId("tables");
  const button = byId("look");
  button.disabled = true;
  place.replaceChildren(make("p", { class: "faint" }, "The store is being read\u2026"));
  try {
    tables = await load(`table?sink=${encodeURIComponent(name)}`);
    if (shownSink === name) place.replaceChildren(...tableParts(tables));
  } catch (error) {
    place.replaceChildren(make("p", {}, String(error.message)));
  }
  button.disabled = false;
}

function tableParts(report) {
  const parts = [make("h3", {}, "Files"), make("p", {}, report.table.error
    || `${number(report.table.files)} data files, ${number(report.table.bytes)} bytes, ${number(report.table.instants)} instants `
    + "on the timeline")];
  parts.push(make("h3", {}, "Bad records by reason"));
  const bad = report.bad_records;
  if (bad.error || !bad.groups.length) parts.push(make("p", {}, bad.error || "none in the errors table"));
  for (const group of bad.groups || []) {
    parts.push(make("div", { class: "alert note" },
      make("p", { class: "what" }, `${number(group.records)}: ${group.reason}`),
      make("p", { class: "faint" }, `the first: ${group.first.topic}-${group.first.partition} offset ${group.first.offset}`),
      make("pre", {}, group.replay)));
  }
  if (bad.groups && bad.groups.length) {
    parts.push(make("p", { class: "faint" }, "Correct the settings first, and stop all workers: a replay puts the records "
      + "that are good by then into the table. Without --yes it only says what it would do."));
  }
  return parts;
}

refresh();
