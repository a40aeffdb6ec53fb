// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0

// A grid of runs: a table with rows and columns as its author arranged them, and one line per cell that can be sorted.

const kValues = {
  test_accuracy: {name: "Test accuracy", unit: "%", scale: 100, digits: 2, high: true},
  best_test_accuracy: {name: "Best accuracy", unit: "%", scale: 100, digits: 2, high: true},
  test_loss: {name: "Test loss", digits: 4}, train_loss: {name: "Training loss", digits: 4},
  seconds: {name: "Time", unit: "s", digits: 2}, total_seconds: {name: "Time with tests", unit: "s", digits: 2},
  samples_per_second: {name: "Samples/s", digits: 0, high: true}, staleness: {name: "Staleness", unit: "versions", digits: 2},
  bytes_sent: {name: "Bytes sent", unit: "MB", scale: 1e-6, digits: 2}, idle_fraction: {name: "Idle", unit: "%", scale: 100, digits: 1},
  steps: {name: "Steps", digits: 0}, samples: {name: "Samples", digits: 0},
};

// How a value is written in all cells of a comparison: in the unit of the largest, with as many digits as the least deviation needs. Without
// deviations the least mean decides.
const kMoreDigits = 3;
function valueKind(comparison, key) {
  const kind = {digits: 4, name: key.replaceAll("_", " "), ...kValues[key]};
  const summaries = comparison.cells.map((cell) => cell.summary[key]).filter(Boolean);
  const means = summaries.map((summary) => Math.abs(summary.mean ?? NaN));
  if (key === "bytes_sent") {
    const [size, unit] = bytesUnit(extremes(means)?.high ?? 0);
    Object.assign(kind, {unit, scale: 1 / size});
  }
  if (key === "seconds" || key === "total_seconds") {
    const kinds = new Set(comparison.cells.flatMap((cell) => cell.runs.map((run) => runOf(comparison, run)?.virtual_time)).filter((each) => each !== undefined));
    if (kinds.has(true)) kind.name = kinds.size > 1 ? `${kind.name} (some virtual)` : `Virtual ${kind.name.toLowerCase()}`;
  }
  kind.scale ??= 1;
  const positive = (values) => extremes(values.filter((value) => value > 0))?.low;
  const least = positive(summaries.map((summary) => summary.deviation)) ?? positive(means);
  const needed = least === undefined ? 0 : 1 - Math.floor(Math.log10(kind.scale * least));
  kind.digits = Math.min(Math.max(kind.digits, needed), kind.digits + kMoreDigits);
  return kind;
}

function fixed(value, digits) { return signed(value.toLocaleString("en-GB", {minimumFractionDigits: digits, maximumFractionDigits: digits})); }

// With so many digits behind the point; a number too small for them with two of its own.
function written(value, digits) {
  if (value === 0) return "0";
  return Math.abs(value) < 10 ** -digits ? number(value, 2) : fixed(value, digits);
}

function runOf(comparison, run) { return data.byPath.get(plainPath(run.path.startsWith("/") ? run.path : `${comparison.path}/${run.path}`)); }

const hasFailed = (run) => run.ending === "failed";
const hasNotConverged = (run) => !hasFailed(run) && run.converged === false;

// "87.50 ± 0.41"; "NC" where no run converged and "failed" where all ended with an error; in brackets what befell only some, or is still to come.
function summaryText(comparison, cell, key, kind) {
  const all = cell?.runs.length ?? 0;
  if (all === 0) return kNone;
  const failed = cell.runs.filter(hasFailed).length;
  const lost = cell.runs.filter(hasNotConverged).length;
  const seeds = comparison.seeds?.length ?? all;
  const some = [];
  if (lost > 0 && lost + failed < all) some.push(`${lost} of ${all} NC`);
  if (failed > 0 && failed < all) some.push(`${failed} of ${all} failed`);
  if (all < seeds) some.push(`${all} of ${seeds} seeds`);
  const {mean: value, deviation} = cell.summary[key] ?? {};
  let text = failed === all ? "failed" : lost + failed === all ? "NC" : isNumber(value) ? written(kind.scale * value, kind.digits) : kNone;
  if (lost + failed < all && isNumber(deviation)) text += deviation === 0 && value === 0 ? "" : ` ± ${written(kind.scale * deviation, kind.digits)}`;
  return some.length > 0 ? `${text} (${some.join(", ")})` : text;
}

function summaryNode(comparison, cell, key, kind) {
  const text = summaryText(comparison, cell, key, kind);
  const reasons = [...new Set((cell?.runs ?? []).filter((run) => hasFailed(run) || hasNotConverged(run)).map((run) => `seed ${run.seed}: ${run.reason || run.ending}`))];
  return element("span", {class: /^(NC|failed)/.test(text) ? "nc" : null, title: reasons.length > 0 ? reasons.join("\n") : null}, text);
}

function headOf(kind) { return kind.unit ? `${kind.name}, ${kind.unit}` : kind.name; }

function cellTable(comparison, memory) {
  const first = comparison.values?.[0] || "test_accuracy";
  const known = new Set(comparison.cells.flatMap((cell) => Object.keys(cell.summary)));
  const keys = [...new Set([...(comparison.values || []), ...Object.keys(kValues)])].filter((key) => known.has(key));
  const columns = comparison.axes.map((axis_, i) => ({
    name: axis_.name, text: true, value: (cell) => cell.labels[i], show: (cell) => cell.labels[i],
  }));
  for (const key of keys) {
    const kind = valueKind(comparison, key);
    columns.push({name: headOf(kind), value: (cell) => cell.summary[key]?.mean ?? null, show: (cell) => summaryNode(comparison, cell, key, kind), bar: key === first});
  }
  columns.push({name: "Runs", value: (cell) => cell.runs.length, show: (cell) => count(cell.runs.length)});
  const numberOf = (name, which) => {
    const value = (cell) => cell.runs.filter(which).length;
    columns.push({name, value, show: (cell) => count(value(cell))});
  };
  numberOf("Not converged", hasNotConverged);
  if (comparison.cells.some((cell) => cell.runs.some(hasFailed))) numberOf("Failed", hasFailed);
  return sortableTable("All cells of the comparison", columns, comparison.cells, memory);
}

// The axes on the two sides of the table, by number.
function sidesOf(comparison) {
  const names = comparison.axes.map((axis_) => axis_.name);
  const side = (wanted) => (wanted || []).map((name) => names.indexOf(name)).filter((i) => i >= 0);
  let rows = side(comparison.rows);
  const columns = side(comparison.columns);
  const left = names.map((_, i) => i).filter((i) => !rows.includes(i) && !columns.includes(i));
  if (rows.length === 0) rows = left.splice(0, 1);
  return {names, rows, columns: columns.concat(left)};
}

// A bare number says nothing without the name of its axis.
function labelOf(comparison, cell, i) {
  const label = cell.labels[i];
  return /^[\d.,eE+−-]+$/.test(label) ? `${comparison.axes[i].name} ${label}` : label;
}

// Rows and columns as in the file: every combination of the labels of the axes on each side.
function pivotTable(comparison, key) {
  const {names, rows, columns} = sidesOf(comparison);
  if (rows.length === 0) return null;
  const keyOf = (cell, axes) => axes.map((i) => cell.labels[i]).join(", ");
  const unique = (axes) => [...new Set(comparison.cells.map((cell) => keyOf(cell, axes)))];
  const columnKeys = unique(columns);
  const kind = valueKind(comparison, key);
  const found = new Map(comparison.cells.map((cell) => [JSON.stringify([keyOf(cell, rows), keyOf(cell, columns)]), cell]));
  const {low: least, high: most} = extremes(comparison.cells.map((cell) => cell.summary[key]?.mean)) ?? {low: 0, high: 0};
  const head = element("tr", {}, element("th", {class: "text", scope: "col"}, rows.map((i) => names[i]).join(", ")),
                       ...columnKeys.map((name) => element("th", {scope: "col"}, name || headOf(kind))));
  const body = unique(rows).map((rowKey) => element("tr", {}, element("th", {scope: "row", class: "text"}, rowKey), ...columnKeys.map((columnKey) => {
    const place = found.get(JSON.stringify([rowKey, columnKey]));
    const value = place?.summary[key]?.mean;
    const cell = element("td", {}, summaryNode(comparison, place, key, kind));
    if (isNumber(value) && most > least) {
      cell.style.backgroundColor = `rgba(var(--heat), ${(0.3 * (value - least) / (most - least)).toFixed(3)})`;
    }
    return cell;
  })));
  const seeds = (comparison.seeds || []).length;
  const failed = comparison.cells.some((cell) => cell.runs.some(hasFailed));
  const caption = `${headOf(kind)}${columns.length > 0 ? `; columns: ${columns.map((i) => names[i]).join(", ")}` : ""}. ` +
    `${seeds === 1 ? "One seed" : `Mean ± deviation over ${count(seeds)} seeds`}; NC: not converged${failed ? "; failed: ended with an error" : ""}.`;
  return element("div", {class: "box", tabindex: "0", role: "region", "aria-label": "Table of the comparison"},
                 element("table", {class: "pivot"}, element("caption", {}, element("span", {}, caption)), element("thead", {}, head), element("tbody", {}, ...body)));
}

// One value against the first axis of the columns, a line for each combination of the labels of the others.
function seriesOf(comparison) {
  const {names, rows, columns} = sidesOf(comparison);
  const across = columns[0] ?? rows[0];
  const others = [...rows, ...columns].filter((i) => i !== across);
  const labels = across === undefined ? [] : [...new Set(comparison.cells.map((cell) => cell.labels[across]))];
  const series = new Map();
  for (const cell of comparison.cells) {
    const name = others.map((i) => labelOf(comparison, cell, i)).join(", ");
    if (!series.has(name)) series.set(name, new Map());
    series.get(name).set(cell.labels[across], cell);
  }
  return {title: names[across] ?? "", labels, series};
}

// Deviations as bars through the points, and at the edge a cross for a cell without any number.
const deviationPlugin = {
  id: "deviations",
  afterDatasetsDraw(chart) {
    const {ctx: context, chartArea: area, scales: {x, y}} = chart;
    const crosses = new Map();
    context.save();
    context.lineWidth = 1.5;
    for (const set of chart.data.datasets) {
      context.strokeStyle = set.borderColor;
      for (const point of set.data) {
        if (!(point.deviation > 0)) continue;
        const [at, top, bottom] = [x.getPixelForValue(point.x), y.getPixelForValue(point.y + point.deviation), y.getPixelForValue(point.y - point.deviation)];
        context.beginPath();
        for (const end of [top, bottom]) {
          context.moveTo(at - 4, end);
          context.lineTo(at + 4, end);
        }
        context.moveTo(at, top);
        context.lineTo(at, bottom);
        context.stroke();
      }
      for (const lost of set.lost) {
        const nth = crosses.get(lost.place) ?? 0;
        crosses.set(lost.place, nth + 1);
        const at = x.getPixelForValue(lost.place) + 12 * (nth % 5);
        const height = set.low ? area.bottom - 8 - 12 * Math.floor(nth / 5) : area.top + 8 + 12 * Math.floor(nth / 5);
        context.beginPath();
        for (const side of [-1, 1]) {
          context.moveTo(at - 4, height - 4 * side);
          context.lineTo(at + 4, height + 4 * side);
        }
        context.stroke();
      }
    }
    context.restore();
  },
};

function comparisonChart(comparison, key) {
  const kind = valueKind(comparison, key);
  const {title, labels, series} = seriesOf(comparison);
  const ordered = labels.every((label) => label !== "" && Number.isFinite(Number(label)));
  const apart = Math.min(0.03, 0.3 / series.size);
  const sets = [...series].map(([name, cells], i) => {
    const style = slotStyle(i);
    const points = [];
    const lost = [];
    labels.forEach((label, place) => {
      const cell = cells.get(label);
      const {mean: value, deviation} = cell?.summary[key] ?? {};
      const text = summaryText(comparison, cell, key, kind);
      if (isNumber(value)) points.push({x: place + apart * (i - (series.size - 1) / 2), y: kind.scale * value, deviation: kind.scale * (deviation ?? 0), label, text, partly: cell.runs.some((run) => hasFailed(run) || hasNotConverged(run))});
      else if (/^(NC|failed)/.test(text)) lost.push({place, label, text});
    });
    return {...lineSet(name || kind.name, style, points), pointRadius: 4, pointBackgroundColor: points.map((point) => (point.partly ? cssValue("--surface") : style.colour)),
            showLine: ordered, lost, low: kind.high === true};
  });
  const range = extremes(sets.flatMap((set) => set.data.flatMap((point) => [point.y - point.deviation, point.y + point.deviation])));
  if (range === null || sets.length * labels.length < 2) return null;
  const anyLost = sets.some((set) => set.lost.length > 0);
  // Room below or above, so that no cross lies on a line.
  const room = ((range.high - range.low) || Math.abs(range.high) || 1) * 0.14;
  const y = axis(headOf(kind), (value) => number(value, 4), {suggestedMin: anyLost && kind.high ? range.low - room : range.low, suggestedMax: anyLost && !kind.high ? range.high + room : range.high});
  const x = axis(title, (value) => labels[value] ?? "", {min: -0.35, max: labels.length - 0.65});
  x.afterBuildTicks = (scale) => { scale.ticks = labels.map((_, value) => ({value})); };
  const options = lineOptions(x, y, {title: (items) => (items.length === 0 ? "" : `${title}: ${items[0].raw.label}`), label: (item) => `${item.dataset.label}: ${item.raw.text}`});
  options.interaction = {mode: "nearest", axis: "xy", intersect: false};
  const notes = sets.some((set) => set.data.some((point) => point.deviation > 0)) ? ["Bars are deviations."] : [];
  if (sets.some((set) => set.data.some((point) => point.partly))) notes.push("Of hollow points some runs did not converge or failed.");
  if (anyLost) notes.push("A cross at the edge: no run converged.");
  const rows = sets.flatMap((set) => [...set.data, ...set.lost].map((point) => [set.label, point.label, point.text]));
  return {
    height: 300, configuration: {type: "line", data: {datasets: sets}, options, plugins: [deviationPlugin]}, note: notes.join(" "),
    legend: series.size > 1 ? sets.map((set, i) => ({name: set.label, ...slotStyle(i)})) : [],
    label: `${headOf(kind)} against ${title}. ${rows.slice(0, 24).map((row) => row.join(" ")).join("; ")}`,
    columns: [{name: "line"}, {name: title}, {name: headOf(kind)}], rows: () => rows,
  };
}

// "Three of twelve runs" where it is not finished.
function progressOf(comparison) {
  const wanted = comparison.cells.length * (comparison.seeds || []).length;
  const done = comparison.cells.reduce((sum, cell) => sum + cell.runs.length, 0);
  return done < wanted ? `${count(done)} of ${count(wanted)} runs done; the same command goes on.` : null;
}

// Of several each says which it is.
function titleOf(kind, parts, part, otherwise) {
  if (parts.length === 1) return part.title && part.title !== data.title ? part.title : otherwise;
  const title = part.title || part.path || kind;
  return parts.filter((each) => each.title === part.title).length > 1 && part.path && part.path !== title ? `${title} (${part.path})` : title;
}

function comparisonParts(comparison, memory) {
  const cards = element("div", {class: "cards"});
  for (const key of comparison.values?.length > 0 ? comparison.values : ["test_accuracy"]) {
    const table = comparison.cells.length > 0 ? pivotTable(comparison, key) : null;
    if (table === null) continue;
    const kind = valueKind(comparison, key);
    cards.append(element("section", {class: "card wide"}, element("div", {class: "card-head"}, element("h3", {}, headOf(kind))), table),
                 chartCard({title: `${kind.name} by ${seriesOf(comparison).title}`, wide: true, build: () => comparisonChart(comparison, key)}));
  }
  cards.append(element("section", {class: "card wide cells"}, element("div", {class: "card-head"}, element("h3", {}, "All cells")),
                       comparison.cells.length > 0 ? cellTable(comparison, memory) : element("p", {class: "muted"}, "There are no cells yet.")));
  const head = element("div", {class: "part-head"}, element("h2", {}, titleOf("Comparison", data.comparisons, comparison, "Comparison")));
  const progress = progressOf(comparison);
  const part = element("section", {class: "part comparison"}, head, progress === null ? null : element("p", {class: "progress"}, progress), cards);
  if (comparison.command) part.append(commandLine(comparison.command));
  return part;
}
