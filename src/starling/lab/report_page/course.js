// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0

// The course of the runs that are shown: lines against samples, steps, epochs or time; staleness; whose time went where.

const kAxes = {
  samples: {name: "Samples", title: () => "samples", format: count},
  step: {name: "Steps", title: () => "steps of the first worker", format: count},
  epoch: {name: "Epochs", title: () => "epochs", format: (value) => number(value, 4)},
  seconds: {name: "Time", title: timeTitle, format: (value) => number(value, 4)},
};

function timeTitle() {
  const kinds = new Set(shownRuns().map((run) => run.virtual_time));
  if (kinds.size > 1) return "time of training, s (virtual where simulated)";
  return kinds.has(true) ? "virtual time of training, s" : "time of training, s";
}

// Points of one field from the records of one kind.
function pointsOf(columns, field) {
  const x = columns[view.axis];
  const y = columns[field];
  if (!x || !y) return [];
  const points = [];
  for (let i = 0; i < x.length; ++i) {
    if (isNumber(x[i]) && isNumber(y[i])) points.push({x: x[i], y: y[i]});
  }
  return points;
}

// Of steps and epochs together. Where there are many epochs, those alone are the calmer line.
function mergedPoints(run, field, epochsSuffice = false) {
  const epochs = pointsOf(run.epochs, field);
  if (epochsSuffice && epochs.length >= 5) return epochs;
  const points = pointsOf(run.steps, field).concat(epochs);
  return points.sort((a, b) => a.x - b.x);
}

function axisOptions() {
  const chosen = kAxes[view.axis];
  return axis(chosen.title(), chosen.format, {beginAtZero: true, grace: 0});
}

// All charts end where the longest run that is shown does.
function furthest() {
  let most = 0;
  for (const run of shownRuns()) {
    for (const columns of [run.steps, run.epochs]) for (const value of columns[view.axis] || []) most = Math.max(most, value ?? 0);
  }
  return most;
}

function describe(title, sets) {
  const parts = sets.filter((set) => set.data.length > 0).map((set) => `${set.label}: last ${number(set.data[set.data.length - 1].value ?? set.data[set.data.length - 1].y)}`);
  return `${title}, against ${kAxes[view.axis].title()}. ${parts.slice(0, 12).join("; ")}`;
}

function diverged(run) { return run.result?.ending === "diverged"; }

// What diverged may be larger than the rest by any power of ten. It leaves the chart a little above the others; beyond, points need not be true to
// scale, and where they are drawn is not what is said of them.
const kRoom = 1.5;
const kFarOutside = 8;
function bounded(sets, y) {
  const range = extremes(sets.filter((set) => !set.diverged).flatMap((set) => set.data.map((point) => point.y)));
  const wild = extremes(sets.filter((set) => set.diverged).flatMap((set) => set.data.map((point) => point.y)));
  const bound = range === null ? 0 : kRoom * Math.max(Math.abs(range.low), Math.abs(range.high));
  if (wild === null || bound === 0 || (wild.high <= bound && wild.low >= -bound)) return {sets, clipped: false};
  y.ticks.includeBounds = false;
  if (wild.high > bound) y.max = bound;
  if (wild.low < -bound && y.type !== "logarithmic") y.min = -bound;
  const clamp = (value) => Math.min(Math.max(value, -kFarOutside * bound), kFarOutside * bound);
  return {clipped: true, sets: sets.map((set) => (set.diverged ? {...set, clip: {left: 6, right: 6, top: 0, bottom: 0},
    data: set.data.map((point) => (clamp(point.y) === point.y ? point : {x: point.x, y: clamp(point.y), value: point.y}))} : set))};
}

// A quantity that is drawn on the scale that is chosen, and on a logarithmic one where all runs diverged. Only positive values have a place on that.
function scaledLines(title, sets, name, format, legend, more = {}) {
  const positive = sets.map((set) => ({...set, data: set.data.filter((point) => point.y > 0)})).filter((set) => set.data.length > 0);
  const lost = positive.length > 0 && positive.every((set) => set.diverged);
  // Long numbers would take the room of the lines.
  const tick = (value) => (Math.abs(value) >= 1e6 ? Number(value.toPrecision(3)).toExponential().replace("e+", "e").replace("-", "−") : number(value, 3));
  if (positive.length === 0 || !(view.logarithmic || lost)) return lines(title, sets, axis(name, tick, more), format, legend);
  const sound = positive.filter((set) => !set.diverged);
  const range = extremes((sound.length > 0 ? sound : positive).flatMap((set) => set.data.map((point) => point.y)));
  const made = lines(title, positive, logarithmicAxis(name, tick, range), format, legend);
  if (lost && !view.logarithmic) made.note = shownRuns().length > 1 ? "Logarithmic, since all runs that are shown diverged." : "Logarithmic, since the run diverged.";
  return made;
}

// A line chart from sets; null where no set has a point.
function lines(title, given, y, format, legend) {
  const {sets, clipped} = bounded(given, y);
  const drawn = sets.filter((set) => set.data.length > 0);
  if (drawn.length === 0) return null;
  const x = axisOptions();
  x.max = furthest() || undefined;
  const chosen = kAxes[view.axis];
  const tooltip = {
    title: (items) => (items.length === 0 ? "" : `${chosen.title()}: ${chosen.format(items[0].parsed.x)}`),
    label: (item) => `${item.dataset.label}: ${format(item.raw.value ?? item.parsed.y)}`,
  };
  return {
    note: clipped ? "Runs that diverged leave the chart." : "",
    configuration: {type: "line", data: {datasets: drawn}, options: lineOptions(x, y, tooltip)}, legend, label: describe(title, drawn),
    columns: [{name: "line"}, {name: chosen.title(), format: chosen.format}, {name: title.toLowerCase(), format}],
    rows: () => drawn.flatMap((set) => set.data.map((point) => [set.label, point.x, point.value ?? point.y])),
  };
}

function onePerRun(field, options = {}) {
  return shownRuns().map((run) => lineSet(run.name, slotStyle(run.slot), mergedPoints(run, field, options.epochsSuffice)
    .map((point) => ({x: point.x, y: point.y * (options.scale || 1)})), {...options.more, diverged: diverged(run)}));
}

function lossOfOneRun() {
  const run = shownRuns()[0];
  const styles = [slotStyle(0), slotStyle(1)];
  const sets = [
    lineSet("test", styles[1], pointsOf(run.epochs, "test_loss"), {order: 1, diverged: diverged(run)}),
    lineSet("training, mean of the epoch so far", styles[0], mergedPoints(run, "train_loss", true), {order: 2, diverged: diverged(run)}),
    lineSet("batches of the first worker", {colour: cssValue("--waiting"), dash: []}, pointsOf(run.steps, "loss"),
            {borderWidth: 1, pointRadius: 0, order: 3, diverged: diverged(run)}),
  ];
  const legend = sets.filter((set) => set.data.length > 0).map((set) => ({name: set.label, colour: set.borderColor}));
  return scaledLines("Loss", sets, "loss", loss, legend);
}

function lineCards() {
  const cards = [];
  const add = (title, build, note) => cards.push(chartCard({title, build, note}));
  const small = (value) => number(value, 4);
  add("Loss", () => (shownRuns().length === 1 ? lossOfOneRun() : null));
  add("Training loss", () => (shownRuns().length === 1 ? null :
    scaledLines("Training loss", onePerRun("train_loss", {epochsSuffice: true}), "training loss", loss, [])),
      "The mean over the samples of the epoch so far, of all workers.");
  add("Test loss", () => (shownRuns().length === 1 ? null :
    scaledLines("Test loss", onePerRun("test_loss"), "test loss", loss, [])));
  // The colour of what was tested is that in the chart of the losses.
  const tested = () => (shownRuns().length === 1 ? {borderColor: slotStyle(1).colour, backgroundColor: slotStyle(1).colour} : {});
  add("Test accuracy", () => lines("Test accuracy", onePerRun("test_accuracy", {scale: 100, more: tested()}), axis("test accuracy, %", small),
                                   (value) => `${value.toFixed(2)} %`, []));
  add("Staleness", () => {
    const sets = onePerRun("staleness", {more: {tension: 0}});
    return lines("Staleness", sets, axis("staleness, versions", small, {beginAtZero: true}), small, []);
  }, "The mean over the updates applied since the record before.");
  add("Norm of the weights", () => scaledLines("Norm of the weights", onePerRun("weight_norm"), "norm of the weights", small, []),
      "The Euclidean norm of the first worker's weights.");
  add("Norm of the gradient", () => scaledLines("Norm of the gradient", onePerRun("gradient_norm", {more: {borderWidth: 1.2, pointRadius: 0}}),
    "norm of the gradient", small, [], {beginAtZero: true}), "Of the first worker's own gradients, before clipping.");
  add("Bytes sent", () => {
    const largest = extremes(shownRuns().flatMap((run) => mergedPoints(run, "bytes_sent").map((point) => point.y)))?.high ?? 0;
    const [size, unit] = bytesUnit(largest);
    return largest === 0 ? null : lines("Bytes sent", onePerRun("bytes_sent", {scale: 1 / size}),
      axis(`sent by all workers, ${unit}`, small, {beginAtZero: true}), (value) => `${small(value)} ${unit}`, []);
  }, "Since the process began with the run.");
  add("Learning rate", () => scaledLines("Learning rate", onePerRun("lr", {more: {stepped: false}}), "learning rate", small, [], {beginAtZero: true}));
  return cards;
}

// Values and counts in at most so many bins of one width.
const kBins = 40;
function histogramBins(histograms) {
  const values = histograms.flatMap((histogram) => histogram.map(([value]) => value));
  if (values.length === 0) return null;
  const {low, high} = extremes(values);
  const width = Math.max(1, Math.ceil((high - low + 1) / kBins));
  const bins = Math.floor((high - low) / width) + 1;
  const labels = Array.from({length: bins}, (_, i) => (width === 1 ? count(low + i) : `${count(low + i * width)}–${count(low + (i + 1) * width - 1)}`));
  const shares = histograms.map((histogram) => {
    const sums = new Array(bins).fill(0);
    const total = histogram.reduce((sum, [, number_]) => sum + number_, 0);
    for (const [value, number_] of histogram) sums[Math.floor((value - low) / width)] += number_;
    return sums.map((sum) => (total > 0 ? 100 * sum / total : 0));
  });
  return {labels, shares};
}

const kStalenessUnits = {version: "versions", gradient_sets: "gradient sets"};

function stalenessHistogram() {
  const runs = shownRuns().filter((run) => exchanges(run) && run.result.histograms[view.staleness].length > 0);
  if (runs.length === 0) return null;
  const bins = histogramBins(runs.map((run) => run.result.histograms[view.staleness]));
  const unit = kStalenessUnits[view.staleness];
  const sets = runs.map((run, i) => ({
    label: run.name, data: bins.shares[i], backgroundColor: barStyle(run.slot).fill, borderColor: barStyle(run.slot).colour, borderWidth: barStyle(run.slot).edge, categoryPercentage: 0.9, barPercentage: 0.95,
  }));
  const x = axis(`staleness, ${unit}`, String, {type: "category"});
  delete x.ticks.callback;
  const options = {
    animation: false, responsive: true, maintainAspectRatio: false, interaction: {mode: "index", intersect: false},
    scales: {x, y: axis("updates applied, %", (value) => number(value, 3), {beginAtZero: true})},
    plugins: {legend: {display: false}, tooltip: {callbacks: {
      title: (items) => `${items[0].label} ${unit}`, label: (item) => `${item.dataset.label}: ${number(item.raw, 3)} %`,
    }}},
  };
  const summaries = runs.map((run) => `${run.name}: mean ${number(run.result.staleness?.[view.staleness]?.mean)}`);
  return {
    title: `Staleness of the updates applied, in ${unit}`,
    configuration: {type: "bar", data: {labels: bins.labels, datasets: sets}, options}, legend: runs.length > 1 ? runs.map((run) => ({name: run.name, ...barStyle(run.slot), filled: true})) : [],
    label: `Histogram of the staleness in ${unit}. ${summaries.slice(0, 12).join("; ")}`,
    columns: [{name: `staleness, ${unit}`}, ...runs.map((run) => ({name: `${run.name}, %`, format: (value) => number(value, 4)}))],
    rows: () => bins.labels.map((label, i) => [label, ...bins.shares.map((share) => share[i])]),
  };
}

const kTimes = [["compute", "compute_seconds"], ["communication", "communication_seconds"], ["waiting", "waiting_seconds"]];
const kManyWorkers = 32;

function timeBars(title, names, times, options) {
  const total = (row) => kTimes.reduce((sum, [, key]) => sum + row[key], 0);
  const value = (row, key) => (options.share ? (total(row) > 0 ? 100 * row[key] / total(row) : 0) : row[key]);
  const unit = options.share ? "%" : "s";
  const sets = kTimes.map(([name, key]) => ({
    label: name, data: times.map((row) => value(row, key)), backgroundColor: cssValue(`--${name}`),
    categoryPercentage: options.dense ? 1 : 0.86, barPercentage: options.dense ? 1 : 0.92,
  }));
  const measure = axis(options.share ? "share of the workers' time, %" : `${options.virtual ? "virtual time" : "time"}, s`, (number_) => number(number_, 4),
                       {stacked: true, beginAtZero: true, max: options.share ? 100 : undefined});
  const names_ = axis(options.nameTitle, String, {type: "category", stacked: true});
  delete names_.ticks.callback;
  names_.grid = {display: false};
  if (!options.nameTitle) names_.title.display = false;
  const clip = (text) => (text.length > 34 ? `${text.slice(0, 33)}…` : text);
  return {
    height: options.dense ? 250 : 74 + names.length * 24,
    configuration: {
      type: "bar", data: {labels: names.map(clip), datasets: sets},
      options: {
        animation: false, responsive: true, maintainAspectRatio: false, indexAxis: options.dense ? "x" : "y", interaction: {mode: "index", intersect: false, axis: options.dense ? "x" : "y"},
        scales: options.dense ? {x: names_, y: measure} : {x: measure, y: {...names_, ticks: {...names_.ticks, autoSkip: false}}},
        plugins: {legend: {display: false}, tooltip: {callbacks: {
          title: (items) => names[items[0].dataIndex], label: (item) => `${item.dataset.label}: ${number(item.raw, 4)} ${unit}`,
        }}},
      },
    },
    legend: kTimes.map(([name]) => ({name, colour: cssValue(`--${name}`), filled: true})),
    label: `${title}. ${names.slice(0, 8).map((name, i) => `${name}: ${kTimes.map(([kind, key]) => `${kind} ${number(value(times[i], key), 3)} ${unit}`).join(", ")}`).join("; ")}`,
    columns: [{name: options.nameTitle || "run"}, ...kTimes.map(([name]) => ({name: `${name}, ${unit}`, format: (number_) => number(number_, 5)}))],
    rows: () => names.map((name, i) => [name, ...kTimes.map(([, key]) => value(times[i], key))]),
  };
}

function timeOfRuns() {
  const runs = shownRuns().filter((run) => (run.result?.workers_time || []).length > 0);
  if (shownRuns().length === 1 || runs.length === 0) return null;
  const sums = runs.map((run) => Object.fromEntries(kTimes.map(([, key]) => [key, run.result.workers_time.reduce((sum, row) => sum + row[key], 0)])));
  return timeBars("Whose time went where, all workers", runs.map((run) => run.name), sums, {share: true});
}

function timeOfWorkers() {
  const run = detailRun();
  const times = run?.result?.workers_time || [];
  if (times.length === 0) return null;
  return timeBars(`Time of the workers of ${run.name}`, times.map((row, i) => String(row.rank ?? i)), times,
                  {virtual: run.virtual_time, dense: times.length > kManyWorkers, nameTitle: "worker"});
}

// Where there are too many workers to read their bars one by one.
function timeQuantiles() {
  const times = detailRun()?.result?.workers_time || [];
  if (times.length <= kManyWorkers) return null;
  const fractions = [["least", 0], ["first quarter", 0.25], ["median", 0.5], ["third quarter", 0.75], ["most", 1]];
  const rows = kTimes.map(([name, key]) => {
    const sorted = times.map((row) => row[key]).sort((a, b) => a - b);
    return [name, ...fractions.map(([, fraction]) => quantile(sorted, fraction))];
  });
  return element("div", {}, element("h3", {}, `${count(times.length)} workers, s`),
                 dataTable([{name: ""}, ...fractions.map(([name]) => ({name, format: (value) => number(value, 4)}))], rows));
}
