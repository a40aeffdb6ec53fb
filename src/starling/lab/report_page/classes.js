// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0

// How well the classes of the test set are told apart, from the confusion matrix of a result.

// As docs/training.md defines them: 0 where there is nothing to divide by.
function classScores(confusion) {
  const ratio = (part, whole) => (whole > 0 ? part / whole : 0);
  return confusion.map((row, i) => {
    const support = row.reduce((sum, value) => sum + value, 0);
    const predicted = confusion.reduce((sum, other) => sum + other[i], 0);
    const precision = ratio(row[i], predicted);
    const recall = ratio(row[i], support);
    return {precision, recall, f1: ratio(2 * precision * recall, precision + recall), support};
  });
}

function classTable(classes, memory) {
  const scores = classScores(classes.confusion);
  const name = (i) => classes.names?.[i] ?? `class ${i}`;
  const rows = scores.map((score, i) => ({...score, name: name(i)}));
  const column = (key) => ({name: key === "f1" ? "F1" : key[0].toUpperCase() + key.slice(1), value: (row) => row[key], show: (row) => percent(row[key]), bar: true});
  const table = sortableTable("Scores of the classes", [
    {name: "Class", text: true, value: (row) => row.name, show: (row) => row.name}, column("precision"), column("recall"), column("f1"),
    {name: "Support", value: (row) => row.support, show: (row) => count(row.support)},
  ], rows, memory);
  const total = scores.reduce((sum, score) => sum + score.support, 0);
  const means = (weight) => ["precision", "recall", "f1"].map((key) => percent(scores.reduce((sum, score) => sum + score[key] * weight(score), 0)));
  const foot = (label, values) => element("tr", {}, element("th", {scope: "row", class: "text"}, label), ...values.map((value) => element("td", {}, value)), element("td", {}, count(total)));
  table.querySelector("table").append(element("tfoot", {},
    foot("mean", means(() => 1 / scores.length)), foot("weighted mean", means((score) => (total > 0 ? score.support / total : 0)))));
  return table;
}

// The shade is the share of the label's samples; the text stays readable because shades stay pale.
function confusionTable(classes) {
  const name = (i) => classes.names?.[i] ?? `class ${i}`;
  const head = element("tr", {}, element("td", {}), ...classes.confusion.map((_, i) => element("th", {scope: "col"}, name(i))));
  const body = classes.confusion.map((row, i) => {
    const support = row.reduce((sum, value) => sum + value, 0);
    return element("tr", {}, element("th", {scope: "row"}, name(i)), ...row.map((value, j) => {
      const cell = element("td", {class: i === j ? "best" : null, title: `${name(i)} taken for ${name(j)}: ${count(value)} of ${count(support)}`}, count(value));
      cell.style.backgroundColor = `rgba(var(--heat), ${support > 0 ? (0.45 * Math.sqrt(value / support)).toFixed(3) : 0})`;
      return cell;
    }));
  });
  return element("div", {class: "box", tabindex: "0", role: "region", "aria-label": "Confusion matrix"},
                 element("table", {class: "confusion"}, element("caption", {}, "Rows are labels, columns are predictions."),
                         element("thead", {}, head), element("tbody", {}, ...body)));
}
