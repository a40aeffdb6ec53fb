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

function valueKind(key) { return kValues[key] || {name: key.replaceAll("_", " "), digits: 4}; }

function fixed(value, digits) { return value.toLocaleString("en-GB", {minimumFractionDigits: digits, maximumFractionDigits: digits}).replace("-", "−"); }

// "87.50 ± 0.41", "NC" where no run converged, "61.20 ± 3.00 (1 of 3 NC)" where some did not.
function summaryText(summary, kind) {
  if (!summary) return kNone;
  const scale = kind.scale || 1;
  const failed = summary.not_converged || 0;
  const runs = (summary.count || 0);
  if (!isNumber(summary.mean)) return failed > 0 ? "NC" : kNone;
  const deviation = isNumber(summary.deviation) ? ` ± ${fixed(scale * summary.deviation, kind.digits)}` : "";
  return `${fixed(scale * summary.mean, kind.digits)}${deviation}${failed > 0 ? ` (${failed} of ${runs + failed} NC)` : ""}`;
}

function summaryNode(summary, kind) {
  const text = summaryText(summary, kind);
  return element("span", {class: text === "NC" ? "nc" : null, title: text === "NC" ? "not converged" : null}, text);
}

function headOf(key) {
  const kind = valueKind(key);
  return kind.unit ? `${kind.name}, ${kind.unit}` : kind.name;
}

function cellTable(comparison, memory) {
  const first = comparison.values?.[0] || "test_accuracy";
  const known = new Set(comparison.cells.flatMap((cell) => Object.keys(cell.summary)));
  const keys = [...new Set([...(comparison.values || []), ...Object.keys(kValues)])].filter((key) => known.has(key));
  const columns = comparison.axes.map((axis_, i) => ({
    name: axis_.name, text: true, value: (cell) => cell.labels[i], show: (cell) => cell.labels[i],
  }));
  for (const key of keys) {
    const kind = valueKind(key);
    columns.push({name: headOf(key), value: (cell) => cell.summary[key]?.mean ?? null, show: (cell) => summaryNode(cell.summary[key], kind), bar: key === first});
  }
  columns.push({name: "Runs", value: (cell) => cell.runs.length, show: (cell) => count(cell.runs.length)});
  columns.push({name: "Not converged", value: notConverged, show: (cell) => count(notConverged(cell))});
  return sortableTable("All cells of the comparison", columns, comparison.cells, memory);
}

function notConverged(cell) { return cell.runs.filter((run) => run.converged === false).length; }

// Rows and columns as in the file: every combination of the labels of the axes on each side.
function pivotTable(comparison, key) {
  const names = comparison.axes.map((axis_) => axis_.name);
  const side = (wanted) => (wanted || []).map((name) => names.indexOf(name)).filter((i) => i >= 0);
  let rows = side(comparison.rows);
  let columns = side(comparison.columns);
  const left = names.map((_, i) => i).filter((i) => !rows.includes(i) && !columns.includes(i));
  if (rows.length === 0) rows = left.splice(0, 1);
  columns = columns.concat(left);
  if (rows.length === 0) return null;
  const keyOf = (cell, axes) => axes.map((i) => cell.labels[i]).join(", ");
  const unique = (axes) => [...new Set(comparison.cells.map((cell) => keyOf(cell, axes)))];
  const columnKeys = unique(columns);
  const kind = valueKind(key);
  const found = new Map(comparison.cells.map((cell) => [JSON.stringify([keyOf(cell, rows), keyOf(cell, columns)]), cell]));
  const means = comparison.cells.map((cell) => cell.summary[key]?.mean).filter(isNumber);
  const least = Math.min(...means);
  const most = Math.max(...means);
  const head = element("tr", {}, element("th", {class: "text", scope: "col"}, rows.map((i) => names[i]).join(", ")),
                       ...columnKeys.map((name) => element("th", {scope: "col"}, name || headOf(key))));
  const body = unique(rows).map((rowKey) => element("tr", {}, element("th", {scope: "row", class: "text"}, rowKey), ...columnKeys.map((columnKey) => {
    const summary = found.get(JSON.stringify([rowKey, columnKey]))?.summary[key];
    const cell = element("td", {}, summaryNode(summary, kind));
    if (isNumber(summary?.mean) && most > least) {
      cell.style.backgroundColor = `rgba(var(--heat), ${(0.3 * (summary.mean - least) / (most - least)).toFixed(3)})`;
    }
    return cell;
  })));
  const caption = `${headOf(key)}${columns.length > 0 ? `; columns: ${columns.map((i) => names[i]).join(", ")}` : ""}. Mean ± deviation over ${count((comparison.seeds || []).length)} seeds; NC: not converged.`;
  return element("div", {class: "box", tabindex: "0", role: "region", "aria-label": "Table of the comparison"},
                 element("table", {class: "pivot"}, element("caption", {}, caption), element("thead", {}, head), element("tbody", {}, ...body)));
}

function comparisonParts(comparison, memory) {
  const cards = element("div", {class: "cards"});
  for (const key of comparison.values?.length > 0 ? comparison.values : ["test_accuracy"]) {
    const table = comparison.cells.length > 0 ? pivotTable(comparison, key) : null;
    if (table !== null) cards.append(element("section", {class: "card wide"}, element("div", {class: "card-head"}, element("h3", {}, headOf(key))), table));
  }
  cards.append(element("section", {class: "card wide cells"}, element("div", {class: "card-head"}, element("h3", {}, "All cells")),
                       comparison.cells.length > 0 ? cellTable(comparison, memory) : element("p", {class: "muted"}, "There are no cells yet.")));
  const head = element("div", {class: "part-head"}, element("h2", {}, comparison.title && comparison.title !== data.title ? comparison.title : "Comparison"));
  const part = element("section", {class: "part comparison"}, head, cards);
  if (comparison.command) part.append(commandLine(comparison.command));
  return part;
}
