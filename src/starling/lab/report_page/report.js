// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0

// The page: reads its data, lays out the parts, and in a live page asks for new data.

const kFirstShown = 8;
const view = {axis: "samples", logarithmic: false, staleness: "version", detail: null, shown: null, memories: {}};
let data = JSON.parse(document.getElementById("data").textContent);

function memory(name) { return (view.memories[name] ??= {}); }

// Which runs are drawn, by path, each with a slot that says its colour.
function chooseRuns() {
  if (view.shown === null) {
    view.shown = new Map();
    // Of a comparison one run per cell, and all that were named themselves.
    const others = new Set(data.comparisons.flatMap((comparison) => comparison.cells.flatMap((cell) => cell.runs.slice(1).map((run) => run.name))));
    const first = data.runs.filter((run) => !others.has(run.name));
    for (const run of (first.length > 0 ? first : data.runs).slice(0, kFirstShown)) view.shown.set(run.path, view.shown.size);
  }
  for (const run of data.runs) run.slot = view.shown.get(run.path);
}

function shownRuns() { return data.runs.filter((run) => run.slot !== undefined); }
function detailRun() { return data.runs.find((run) => run.path === view.detail) || shownRuns()[0] || data.runs[0]; }

function showRun(run, on) {
  if (on) {
    const used = new Set(view.shown.values());
    let slot = 0;
    while (used.has(slot)) ++slot;
    view.shown.set(run.path, slot);
  } else {
    view.shown.delete(run.path);
  }
  chooseRuns();
  refresh();
}

function last(run, field) {
  const values = (run.epochs[field] || []).filter(isNumber);
  return values.length > 0 ? values[values.length - 1] : null;
}

// From the result, or while there is none from the last record.
function figureOf(run, field) { return run.result ? run.result[field] ?? null : last(run, field) ?? lastStep(run, field); }
function lastStep(run, field) {
  const values = (run.steps[field] || []).filter(isNumber);
  return values.length > 0 ? values[values.length - 1] : null;
}

function statusOf(run) {
  if (!run.result) return {text: data.live && !data.live.ended ? "running" : "no result yet", kind: "warn"};
  const ending = run.result.ending || "finished";
  return {text: ending, kind: ending === "finished" ? "good" : ending === "diverged" ? "bad" : "warn"};
}

function badge(status) { return element("span", {class: `badge ${status.kind}`}, status.text); }

function strategyText(run) {
  const value = (key) => run.config.find(([name]) => name === key)?.[1];
  const name = run.result?.strategy ?? (value("strategy.name") || (Number(value("strategy.workers")) > 1 ? "sync" : "sequential"));
  const workers = run.result?.workers ?? value("strategy.workers");
  return {name, workers: Number(workers)};
}

// A worker alone applies its own updates, none of them stale.
function exchanges(run) { return strategyText(run).name !== "sequential" && Array.isArray(run.result?.histograms?.version) && Array.isArray(run.result.histograms.gradient_sets); }

function timeName(run) { return run.virtual_time ? "Virtual time" : "Time"; }

function figuresOf(run) {
  const result = run.result;
  const entries = [
    ["Test accuracy", percent(figureOf(run, "test_accuracy")), isNumber(result?.best_test_accuracy) ? `best ${percent(result.best_test_accuracy)}` : null, figureOf(run, "test_accuracy")],
    ["Test loss", loss(figureOf(run, "test_loss")), null, figureOf(run, "test_loss")],
    ["Training loss", loss(figureOf(run, "train_loss")), "mean of the last epoch", figureOf(run, "train_loss")],
    ["Samples", count(figureOf(run, "samples")), `${number(result?.epochs ?? figureOf(run, "epoch"))} epochs, ${count(result?.steps ?? figureOf(run, "step"))} steps`, figureOf(run, "samples")],
    [timeName(run), seconds(figureOf(run, "seconds")), `${count(figureOf(run, "samples_per_second"))} samples/s`, figureOf(run, "seconds")],
    ["Staleness", number(result?.staleness?.version?.mean, 3), `versions, mean; 95 % at most ${number(result?.staleness?.version?.p95, 3)}`, exchanges(run) ? result.staleness?.version?.mean : null],
    ["Bytes sent", bytes(figureOf(run, "bytes_sent")), null, figureOf(run, "bytes_sent") || null],
    ["Idle", percent(result?.idle_fraction, 1), result?.straggler ? `straggler: rank ${result.straggler.rank}, ${number(result.straggler.times, 3)} times as slow` : "of the workers' time", (strategyText(run).workers > 1 ? result?.idle_fraction : null)],
  ];
  return element("dl", {class: "figures"}, ...entries.filter((entry) => isNumber(entry[3])).map(([name, value, more]) =>
    element("div", {class: "figure"}, element("dt", {}, name), element("dd", {}, value, more ? element("small", {}, more) : null))));
}

function runsTable() {
  const columns = [
    {name: "Run", text: true, kind: "text name", value: (run) => run.name, show: (run) => {
      const box = element("input", {type: "checkbox", "aria-label": `Show ${run.name} in the charts`, change: (event) => showRun(run, event.target.checked)});
      box.checked = run.slot !== undefined;
      const style = run.slot === undefined ? {colour: "transparent", dash: []} : slotStyle(run.slot);
      return element("label", {class: "run"}, box, swatch(style.colour, style.dash), element("span", {}, run.name));
    }},
    {name: "Strategy", text: true, value: (run) => strategyText(run).name, show: (run) => strategyText(run).name},
    {name: "Workers", value: (run) => strategyText(run).workers, show: (run) => count(strategyText(run).workers)},
  ];
  const figure = (name, field, show, bar) => {
    if (data.runs.some((run) => isNumber(figureOf(run, field)))) columns.push({name, bar, value: (run) => figureOf(run, field), show: (run) => show(figureOf(run, field))});
  };
  figure("Test accuracy", "test_accuracy", percent, true);
  figure("Test loss", "test_loss", loss);
  figure("Training loss", "train_loss", loss);
  const kinds = new Set(data.runs.map((run) => run.virtual_time));
  figure(kinds.size > 1 ? "Time, s (some virtual)" : kinds.has(true) ? "Virtual time, s" : "Time, s", "seconds", (value) => number(value, 4));
  figure("Samples/s", "samples_per_second", count);
  const stale = (run) => (exchanges(run) ? run.result.staleness?.version?.mean ?? null : null);
  if (data.runs.some((run) => isNumber(stale(run)))) columns.push({name: "Staleness, versions", value: stale, show: (run) => number(stale(run), 3)});
  figure("Sent", "bytes_sent", bytes);
  figure("Idle", "idle_fraction", (value) => percent(value, 1));
  columns.push({name: "State", text: true, value: (run) => statusOf(run).text, show: (run) => badge(statusOf(run))});
  return sortableTable("The runs", columns, data.runs, memory("runs"));
}

function switchOf(label, choices, chosen, choose) {
  const buttons = Object.entries(choices).map(([key, name]) => element("button", {type: "button", "aria-pressed": String(key === chosen), "data-choice": key, click: (event) => {
    for (const button of buttons) button.setAttribute("aria-pressed", String(button === event.currentTarget));
    choose(key);
  }}, name));
  return element("div", {class: "switch", role: "group", "aria-label": label}, ...buttons);
}

function commandLine(command) {
  const button = element("button", {type: "button", class: "button", click: () => copyText(command, button)}, "Copy");
  return element("div", {class: "command"}, element("code", {}, command), button);
}

// Pages from a disk may not use the clipboard everywhere; the old way works there.
async function copyText(text, button) {
  let copied = false;
  try {
    await navigator.clipboard.writeText(text);
    copied = true;
  } catch {
    const area = element("textarea", {});
    area.value = text;
    document.body.append(area);
    area.select();
    copied = document.execCommand("copy");
    area.remove();
  }
  button.textContent = copied ? "Copied" : "Select the text to copy it";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

// The keys in which the runs differ, and all of them in a fold-out.
function configurationCard() {
  const runs = shownRuns();
  if (runs.length === 0) return null;
  const maps = runs.map((run) => new Map(run.config));
  const keys = [...new Set(runs.flatMap((run) => run.config.map(([key]) => key)))].sort();
  const differing = keys.filter((key) => new Set(maps.map((map) => map.get(key) ?? kNone)).size > 1);
  const table = (chosen) => {
    const head = element("tr", {}, element("th", {scope: "col", class: "text"}, "Key"), ...runs.map((run) => element("th", {scope: "col", class: "text"}, runs.length > 1 ? run.name : "Value")));
    const body = chosen.map((key) => element("tr", {}, element("th", {scope: "row", class: "text"}, key), ...maps.map((map) => element("td", {class: "text"}, map.get(key) ?? kNone))));
    return element("div", {class: "box", tabindex: "0", role: "region", "aria-label": "Configuration"}, element("table", {}, element("thead", {}, head), element("tbody", {}, ...body)));
  };
  const card = element("section", {class: "card wide configuration"}, element("div", {class: "card-head"}, element("h3", {}, "Configuration")));
  if (runs.length > 1) card.append(differing.length > 0 ? table(differing) : element("p", {class: "muted"}, "The runs have the same configuration."));
  card.append(element("details", {}, element("summary", {}, `All ${count(keys.length)} keys`), table(keys)));
  card.append(element("p", {class: "note"}, runs.length > 1 ? "To repeat a run:" : "To repeat the run:"), ...runs.map((run) => commandLine(run.command)));
  return card;
}

function classCards() {
  const run = detailRun();
  const classes = run?.result?.classes;
  if (!classes) return [];
  const card = (title, content) => element("section", {class: "card wide"}, element("div", {class: "card-head"}, element("h3", {}, title)), content);
  return [card("Classes", classTable(classes, memory("classes"))), card("Confusion matrix", confusionTable(classes))];
}

// Why something that one might look for is not there.
function absences() {
  const run = detailRun();
  if (!run) return [];
  const reasons = [];
  if (!run.steps.step && !run.epochs.step) reasons.push("It has no records yet, so there are no lines.");
  if (!run.result) reasons.push("It has no result yet, so staleness histogram, workers' time and classes are missing: it is under way, or was stopped.");
  else {
    if (!run.result.classes) reasons.push("Its answers are no classes, or it was not tested.");
    if (!exchanges(run)) reasons.push("It exchanged no updates, so there is no staleness.");
  }
  return reasons;
}

// Parts that are made anew whenever what is shown changes; charts are only refreshed.
const renewed = [];
function renewing(make) {
  const holder = element("div", {style: null});
  holder.style.display = "contents";
  const renew = () => holder.replaceChildren(...[make()].flat().filter((node) => node !== null));
  renewed.push(renew);
  return holder;
}

function overviewPart() {
  if (data.runs.length === 0) return null;
  if (data.runs.length === 1) return element("section", {class: "part overview"}, renewing(() => figuresOf(data.runs[0])));
  return element("section", {class: "part overview"}, element("div", {class: "part-head"}, element("h2", {}, `${count(data.runs.length)} runs`),
    element("span", {class: "note"}, "the ticked ones are drawn below")), element("div", {class: "card"}, renewing(runsTable)));
}

function coursePart() {
  const axes = Object.fromEntries(Object.entries(kAxes).map(([key, value]) => [key, value.name]));
  const head = element("div", {class: "part-head"}, element("h2", {}, "Course"),
    switchOf("Scale of the loss", {linear: "Linear loss", logarithmic: "Logarithmic"}, view.logarithmic ? "logarithmic" : "linear", (key) => { view.logarithmic = key === "logarithmic"; refreshCharts(); }),
    switchOf("Against what", axes, view.axis, (key) => { view.axis = key; refreshCharts(); }));
  const chips = renewing(() => (data.runs.length > 1 ? element("div", {class: "chips"}, legendOf(shownRuns().map((run) => ({name: run.name, ...slotStyle(run.slot)})))) : null));
  return element("section", {class: "part course"}, head, chips, element("div", {class: "cards"}, ...lineCards()));
}

function detailPart() {
  const units = switchOf("Unit of the staleness", {version: "Versions", gradient_sets: "Gradient sets"}, view.staleness, (key) => { view.staleness = key; refreshCharts(); });
  const exchanged = data.runs.some(exchanges);
  const cards = element("div", {class: "cards"},
    chartCard({title: "Staleness of the updates applied", wide: true, build: stalenessHistogram}),
    chartCard({title: "Whose time went where", wide: true, build: timeOfRuns}));
  return element("section", {class: "part exchange"}, element("div", {class: "part-head"}, element("h2", {}, "Updates and time"), exchanged ? units : null), cards);
}

function runPart() {
  const head = renewing(() => {
    const run = detailRun();
    if (!run) return null;
    const title = element("h2", {}, data.runs.length > 1 ? "One run" : "The run");
    if (data.runs.length === 1) return element("div", {class: "part-head"}, title);
    const select = element("select", {"aria-label": "The run to look at", change: (event) => { view.detail = event.target.value; refresh(); }},
      ...data.runs.map((each) => element("option", {value: each.path}, each.name)));
    select.value = run.path;
    return element("div", {class: "part-head"}, title, select);
  });
  const quantiles = renewing(() => { const table = timeQuantiles(); return table === null ? null : element("section", {class: "card wide"}, table); });
  return element("section", {class: "part run-part"}, head, element("div", {class: "cards"},
    chartCard({title: "Whose time went where, by worker", wide: true, build: timeOfWorkers}), quantiles, renewing(classCards), renewing(configurationCard)),
    renewing(() => absences().map((reason) => element("p", {class: "note"}, reason))));
}

function headerParts() {
  const single = data.runs.length === 1 ? data.runs[0] : null;
  const nodes = [element("h1", {}, data.title)];
  if (single) {
    const {name, workers} = strategyText(single);
    const config = new Map(single.config);
    const words = [`${name}, ${count(workers)} ${workers === 1 ? "worker" : "workers"}`, config.get("model.name"), config.get("data.name"),
                   `fabric ${config.get("fabric.name")}`, `seed ${config.get("run.seed")}`].filter(Boolean);
    nodes.push(element("p", {class: "subtitle"}, words.join(" · "), " ", badge(statusOf(single))));
    if (single.result?.reason) nodes.push(element("p", {class: "subtitle"}, `Why: ${single.result.reason}`));
  }
  if (data.live) nodes.push(element("p", {class: "subtitle", id: "live", role: "status"}, liveText()));
  return nodes;
}

function liveText() {
  if (data.live.problem) return `Cannot read the run: ${data.live.problem}`;
  if (data.live.lost) return "The program has ended or cannot be reached; this is the last state it showed.";
  return data.live.ended ? "The run has ended; this is its last state." : "Live: updated every second while this page is visible.";
}

// What the page consists of; while this stays the same new data only refreshes it.
function shape() {
  return JSON.stringify([data.runs.map((run) => run.path), data.comparisons.length, data.landscapes.length, data.runs.map((run) => run.result !== null)]);
}

let drawn = null;
function layOut() {
  forgetCharts();
  renewed.length = 0;
  drawn = shape();
  const main = document.getElementById("main");
  const parts = [...data.comparisons.map((comparison, i) => comparisonParts(comparison, memory(`cells${i}`))), ...data.landscapes.map(landscapeParts), overviewPart()];
  if (data.runs.length > 0) parts.push(coursePart(), detailPart(), runPart());
  main.replaceChildren(...parts.filter((part) => part !== null));
  const version = typeof Chart.version === "string" ? Chart.version : "";
  document.getElementById("footer").replaceChildren(
    `Made by Starling ${data.version}. Lines have at most 2,000 points: of longer courses the records stay that are extreme in their stretch. Charts: Chart.js ${version}, MIT licence.`);
}

function refresh() {
  document.getElementById("top").replaceChildren(...headerParts());
  if (drawn !== shape()) layOut();
  for (const renew of renewed) renew();
  refreshCharts();
  // A part of which nothing is there has no heading either.
  fillRows();
  for (const part of document.querySelectorAll(".exchange, .course")) part.hidden = [...part.querySelectorAll(".card")].every((card) => card.hidden);
}

// A card that would stand alone in its row takes the whole of it.
function fillRows() {
  for (const grid of document.querySelectorAll(".course .cards")) {
    const cards = [...grid.children].filter((card) => !card.hidden);
    cards.forEach((card, i) => card.classList.toggle("wide", i === cards.length - 1 && cards.length % 2 === 1));
  }
}

chooseRuns();
refresh();

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refresh);
let resizing = 0;
window.addEventListener("resize", () => {
  cancelAnimationFrame(resizing);
  resizing = requestAnimationFrame(() => { for (const chart of allCharts) chart.resize(); });
});
// Paper is light, whatever the screen is.
window.addEventListener("beforeprint", () => { document.documentElement.classList.add("printing"); refresh(); for (const chart of allCharts) chart.resize(); });
window.addEventListener("afterprint", () => { document.documentElement.classList.remove("printing"); refresh(); for (const chart of allCharts) chart.resize(); });

if (data.live) {
  const page = Math.random().toString(36).slice(2);
  const kPause = 1000;
  let leaving = false;
  const ask = async () => {
    if (data.live.ended || data.live.lost) return;
    if (document.visibilityState === "visible") {
      leaving = false;
      try {
        const answer = await fetch(`data.json?page=${page}`, {cache: "no-store"});
        const text = await answer.text();
        if (!answer.ok) throw new Error(text);
        data = JSON.parse(text);
      } catch {
        data.live.lost = true;
      }
      chooseRuns();
      refresh();
    }
    setTimeout(ask, kPause);
  };
  // The program waits a moment for pages that still want the last state, so those that go say so.
  const leave = () => {
    if (leaving || data.live.ended || data.live.lost) return;
    leaving = true;
    fetch(`data.json?page=${page}&leaves`, {keepalive: true}).catch(() => {});
  };
  document.addEventListener("visibilitychange", () => { if (document.visibilityState !== "visible") leave(); });
  window.addEventListener("pagehide", leave);
  setTimeout(ask, kPause);
}
