// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0

// The page: reads its data, lays out the parts, and in a live page asks for new data.

const kFirstShown = 8;
const view = {axis: "samples", logarithmic: false, staleness: "version", detail: null, shown: null, memories: {}};
let data = null;

function memory(name) { return (view.memories[name] ??= {}); }

// A path without detours, so that the same folder has the same text.
function plainPath(path) {
  const parts = [];
  for (const part of path.split("/")) {
    if (part === "" || part === ".") continue;
    if (part === ".." && parts.length > 0 && parts[parts.length - 1] !== "..") parts.pop();
    else parts.push(part);
  }
  return (path.startsWith("/") ? "/" : "") + parts.join("/");
}

// The run in this folder. Where one path is absolute and the other is not, their ends have to agree, and no other run's.
function runAt(path) {
  const plain = plainPath(path);
  const exact = data.byPath.get(plain);
  if (exact) return exact;
  const tail = (text) => `/${text.replace(/^(\.\.\/)+/, "")}`;
  const found = data.runs.filter((run) => {
    const other = plainPath(run.path);
    if (plain.startsWith("/") === other.startsWith("/")) return false;
    return plain.startsWith("/") ? plain.endsWith(tail(other)) : other.endsWith(tail(plain));
  });
  return found.length === 1 ? found[0] : undefined;
}

// New data: which run lies where, and what runs of comparisons are called.
function takeIn(given) {
  data = given;
  data.byPath = new Map(data.runs.map((run) => [plainPath(run.path), run]));
  const names = new Map();
  for (const comparison of data.comparisons) {
    for (const cell of comparison.cells) {
      for (const each of cell.runs) {
        const run = runOf(comparison, each);
        if (!run) continue;
        run.comparison = comparison;
        run.cell = cell;
        run.name = [...cell.labels.map((_, i) => labelOf(comparison, cell, i)), `seed ${each.seed ?? "?"}`].join(", ");
        names.set(run.name, (names.get(run.name) ?? 0) + 1);
      }
    }
  }
  for (const run of data.runs) if (run.comparison && names.get(run.name) > 1) run.name = `${run.comparison.title || run.comparison.path}: ${run.name}`;
}

// One run of each cell of a comparison, those of a line of its chart together.
function firstOfCells(comparison) {
  let series = new Map();
  try {
    ({series} = seriesOf(comparison));
  } catch (error) {
    console.error(error);  // Its part says that it cannot be shown.
  }
  return [...series.values()].map((cells) =>
    [...cells.values()].map((cell) => cell.runs.map((each) => runOf(comparison, each)).find(Boolean)).filter(Boolean)).filter((runs) => runs.length > 0);
}

// At first all that were named themselves, and of comparisons as many as there is room for: evenly over the lines, then along them.
function firstRuns() {
  const own = data.runs.filter((run) => !run.comparison).slice(0, kFirstShown);
  const series = data.comparisons.flatMap(firstOfCells);
  const room = kFirstShown - own.length;
  const chosen = [];
  if (series.length > room) {
    for (let i = 0; i < room; ++i) chosen.push(series[Math.floor(i * series.length / room)][0]);
  } else {
    for (let place = 0; chosen.length < room && series.some((runs) => place < runs.length); ++place) {
      for (const runs of series) if (place < runs.length && chosen.length < room) chosen.push(runs[place]);
    }
  }
  return [...chosen, ...own];
}

// Which runs are drawn, by path, each with a slot that says its colour.
function chooseRuns() {
  view.shown ??= new Map(firstRuns().map((run, i) => [run.path, i]));
  for (const run of data.runs) run.slot = view.shown.get(run.path);
}

function showRuns(runs) {
  view.shown = new Map(runs.map((run, i) => [run.path, i]));
  chooseRuns();
  refresh();
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
  if (!run.result) return {text: data.live?.lost ? "unknown" : data.live && !data.live.ended ? "running" : "no result yet", kind: "warn"};
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

// Ticks and colours change in their rows; the table stays as it is.
function refreshTicks() {
  for (const label of document.querySelectorAll(".overview .run")) {
    const slot = view.shown.get(label.dataset.path);
    const style = slot === undefined ? {colour: "transparent", dash: []} : slotStyle(slot);
    label.querySelector("input").checked = slot !== undefined;
    label.querySelector(".swatch").replaceWith(swatch(style.colour, style.dash));
  }
}

function runsTable() {
  const columns = [
    {name: "Run", text: true, kind: "text name", value: (run) => run.name, show: (run) => element("label", {class: "run", "data-path": run.path},
      element("input", {type: "checkbox", "aria-label": `Show ${run.name} in the charts`, change: (event) => showRun(run, event.target.checked)}),
      swatch("transparent"), element("span", {}, run.name))},
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
  // Paper has no folds.
  if (runs.length === 1) card.append(element("dl", {class: "on-paper"}, ...runs[0].config.map(([key, value]) => element("div", {}, element("dt", {}, key), element("dd", {}, value)))));
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
    const ending = run.result.ending || "finished";
    if (!run.result.classes) reasons.push(ending === "finished" ? "Its answers are no classes, or it was not tested." : `It did not finish (${ending}), so its classes were not tested.`);
    if (!exchanges(run)) reasons.push("It exchanged no updates, so there is no staleness.");
  }
  return reasons;
}

// Parts that are made anew whenever what is shown changes; charts are only refreshed.
const renewed = [];
function renewing(what, make) {
  const holder = element("div", {});
  holder.style.display = "contents";
  renewed.push(renewal(holder, what, make));
  return holder;
}

// What has not changed stays: it may be selected, scrolled or unfolded.
function renewal(holder, what, make) {
  let before = null;
  return () => {
    const nodes = [attempt(what, make)].flat().filter((node) => node !== null);
    const now = nodes.map((node) => node.outerHTML).join("");
    if (now === before) return;
    before = now;
    keepingPlace(holder, () => holder.replaceChildren(...nodes));
  };
}

// The page of one run is about that run; one of a comparison is not, though there may be only one yet.
function singleRun() { return data.runs.length === 1 && data.comparisons.length === 0 ? data.runs[0] : null; }

function overviewPart() {
  if (data.runs.length === 0) return null;
  if (singleRun()) return element("section", {class: "part overview"}, renewing("The figures", () => figuresOf(data.runs[0])));
  const button = (text, runs) => element("button", {type: "button", class: "button", click: () => showRuns(runs())}, text);
  const cells = data.comparisons.length > 0 ? button("One of each cell", () => data.comparisons.flatMap(firstOfCells).flat()) : null;
  return element("section", {class: "part overview"}, element("div", {class: "part-head"}, element("h2", {}, data.runs.length === 1 ? "One run" : `${count(data.runs.length)} runs`),
    element("span", {class: "note"}, "the ticked ones are drawn below"), cells, button("None", () => [])), element("div", {class: "card"}, renewing("The runs", runsTable)));
}

function coursePart() {
  const axes = Object.fromEntries(Object.entries(kAxes).map(([key, value]) => [key, value.name]));
  const head = element("div", {class: "part-head"}, element("h2", {}, "Course"),
    switchOf("Scale of losses, norms and learning rate", {linear: "Linear", logarithmic: "Logarithmic"}, view.logarithmic ? "logarithmic" : "linear", (key) => { view.logarithmic = key === "logarithmic"; refreshCharts(); }),
    switchOf("Against what", axes, view.axis, (key) => { view.axis = key; refreshCharts(); }));
  const chips = renewing("The legend", () => (data.runs.length > 1 ? element("div", {class: "chips"}, legendOf(shownRuns().map((run) => ({name: run.name, ...slotStyle(run.slot)})))) : null));
  return element("section", {class: "part course"}, head, chips, element("div", {class: "cards"}, ...lineCards()));
}

function detailPart() {
  const units = renewing("The units", () => (data.runs.some(exchanges) ?
    switchOf("Unit of the staleness", {version: "Versions", gradient_sets: "Gradient sets"}, view.staleness, (key) => { view.staleness = key; refreshCharts(); }) : null));
  const cards = element("div", {class: "cards"},
    chartCard({title: "Staleness of the updates applied", wide: true, build: stalenessHistogram}),
    chartCard({title: "Whose time went where", wide: true, build: timeOfRuns}));
  return element("section", {class: "part exchange"}, element("div", {class: "part-head"}, element("h2", {}, "Updates and time"), units), cards);
}

function runPart() {
  const head = renewing("The choice", () => {
    const run = detailRun();
    if (!run) return null;
    const title = element("h2", {}, data.runs.length > 1 ? "One run" : "The run");
    if (data.runs.length === 1) return element("div", {class: "part-head"}, title);
    const select = element("select", {"aria-label": "The run to look at", change: (event) => { view.detail = event.target.value; refresh(); }},
      ...data.runs.map((each) => element("option", {value: each.path, selected: each === run}, each.name)));
    return element("div", {class: "part-head"}, title, select);
  });
  const quantiles = renewing("The time of the workers", () => { const table = timeQuantiles(); return table === null ? null : element("section", {class: "card wide"}, table); });
  return element("section", {class: "part run-part"}, head, element("div", {class: "cards"},
    chartCard({title: "Whose time went where, by worker", wide: true, build: timeOfWorkers}), quantiles, renewing("The classes", classCards), renewing("The configuration", configurationCard)),
    renewing("What is missing", () => absences().map((reason) => element("p", {class: "note"}, reason))));
}

function headerParts() {
  const single = singleRun();
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
  if (data.live.lost) return "The program has ended or cannot be reached; this is the last state it showed. The page goes on trying.";
  return data.live.ended ? "The run has ended; this is its last state." : "Live: updated every second while this page is visible, else every ten.";
}

// What the page consists of; while this stays the same new data only refreshes it.
function shape() {
  return JSON.stringify([data.runs.map((run) => run.path), data.comparisons.length, data.landscapes.length]);
}

let drawn = null;
function layOut() {
  forgetCharts();
  renewed.length = 0;
  drawn = shape();
  const main = document.getElementById("main");
  const parts = [
    ...data.comparisons.map((comparison, i) => attempt("The comparison", () => comparisonParts(comparison, memory(`cells${i}`)))),
    ...data.landscapes.map((landscape) => attempt("The landscape", () => landscapeParts(landscape))), attempt("The overview", overviewPart),
  ];
  if (data.runs.length > 0) parts.push(attempt("The course", coursePart), attempt("Updates and time", detailPart), attempt("The run", runPart));
  main.replaceChildren(...parts.filter((part) => part !== null));
  const version = typeof Chart.version === "string" ? Chart.version : "";
  document.getElementById("footer").replaceChildren(
    `Made by Starling ${data.version}. Lines have at most 2,000 points: of longer courses the records stay that are extreme in their stretch. Charts: Chart.js ${version}, MIT licence.`);
}

const renewHeader = renewal(document.getElementById("top"), "The heading", headerParts);
function refresh() {
  renewHeader();
  if (drawn !== shape()) layOut();
  for (const renew of renewed) renew();
  refreshTicks();
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

takeIn(JSON.parse(document.getElementById("data").textContent));
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
  const kHiddenPause = 1500;
  const kLongestPause = 30000;
  let retry = kPause;
  let timer = 0;
  let asking = false;
  const ask = async () => {
    if (asking || data.live.ended) return;
    asking = true;
    clearTimeout(timer);
    let pause = document.visibilityState === "visible" ? kPause : kHiddenPause;
    try {
      const answer = await fetch(`data.json?page=${page}`, {cache: "no-store"});
      const text = await answer.text();
      if (!answer.ok) throw new Error(text);
      takeIn(JSON.parse(text));
      retry = kPause;
    } catch {
      data.live.lost = true;
      pause = retry;
      retry = Math.min(2 * retry, kLongestPause);
    }
    asking = false;
    timer = setTimeout(ask, pause);
    chooseRuns();
    refresh();
  };
  // Who looks again does not want to wait for what is new.
  document.addEventListener("visibilitychange", () => { if (document.visibilityState === "visible") ask(); });
  // The program waits a moment for pages that still want the last state, so those that go say so.
  window.addEventListener("pagehide", () => { if (!data.live.ended && !data.live.lost) fetch(`data.json?page=${page}&leaves`, {keepalive: true}).catch(() => {}); });
  // A page that comes back from the browser's memory.
  window.addEventListener("pageshow", (event) => { if (event.persisted) ask(); });
  timer = setTimeout(ask, kPause);
}
