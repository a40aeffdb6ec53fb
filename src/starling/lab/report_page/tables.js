// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0

// Tables: plain ones behind charts, and ones that can be sorted by a click or by the keyboard.

const kLongTable = 500;

// columns: [{name, format}], rows: arrays of raw values. Long ones are cut, and say so.
function dataTable(columns, rows) {
  const head = element("tr", {}, ...columns.map((column) => element("th", {scope: "col", class: column.format ? null : "text"}, column.name)));
  const body = element("tbody", {});
  for (const row of rows.slice(0, kLongTable)) {
    body.append(element("tr", {}, ...row.map((value, i) => element("td", {class: columns[i].format ? null : "text"},
                                                                   columns[i].format ? columns[i].format(value) : String(value ?? kNone)))));
  }
  const box = element("div", {class: "box tall", tabindex: "0", role: "region", "aria-label": "Data of the chart"},
                      element("table", {}, element("thead", {}, head), body));
  const parts = element("div", {}, box);
  if (rows.length > kLongTable) parts.append(element("p", {class: "note"}, `The first ${count(kLongTable)} of ${count(rows.length)} rows.`));
  return parts;
}

function compareValues(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), "en", {numeric: true});
}

const isMissing = (value) => value === null || value === undefined || (typeof value === "number" && Number.isNaN(value));

// columns: [{name, text, value(row), show(row) → text or node, bar}]. What has no value comes last, however it is sorted.
// `memory` keeps the order when the table is made again.
function sortableTable(label, columns, rows, memory) {
  const table = element("table", {});
  const body = element("tbody", {});
  const heads = columns.map((column, i) => element("th", {scope: "col", class: column.text ? "text" : null, "aria-sort": "none"},
    element("button", {type: "button", click: () => sort(i)}, column.name.replace(/, (?=\S{1,2}$)/, ",\u00a0"))));
  const largest = columns.map((column) => (column.bar ? Math.max(extremes(rows.map((row) => column.value(row)))?.high ?? 0, 0) : 0));
  const lines = rows.map((row) => element("tr", {}, ...columns.map((column, i) => {
    const cell = element("td", {class: column.kind || (column.text ? "text" : null)});
    const shown = column.show(row);
    if (column.bar && isNumber(column.value(row)) && largest[i] > 0) {
      cell.className = "bar";
      const bar = element("i", {});
      bar.style.width = `${Math.max(0, 100 * column.value(row) / largest[i])}%`;
      cell.append(bar, element("span", {}, shown));
    } else {
      cell.append(shown);
    }
    return cell;
  })));
  const arrange = () => {
    heads.forEach((head, i) => head.setAttribute("aria-sort", i === memory.column ? (memory.down ? "descending" : "ascending") : "none"));
    const order = rows.map((_, i) => i);
    if (memory.column !== undefined) {
      const value = columns[memory.column].value;
      order.sort((i, j) => {
        const a = value(rows[i]);
        const b = value(rows[j]);
        if (isMissing(a) || isMissing(b)) return (isMissing(a) ? 1 : 0) - (isMissing(b) ? 1 : 0) || i - j;
        return (memory.down ? -1 : 1) * compareValues(a, b) || i - j;
      });
    }
    body.append(...order.map((i) => lines[i]));
  };
  const sort = (i) => {
    memory.down = memory.column === i ? !memory.down : !columns[i].text;
    memory.column = i;
    arrange();
  };
  arrange();
  table.append(element("thead", {}, element("tr", {}, ...heads)), body);
  return element("div", {class: rows.length > 12 ? "box tall" : "box", tabindex: "0", role: "region", "aria-label": label}, table);
}
