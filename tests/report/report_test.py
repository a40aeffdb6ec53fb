# Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
"""The report page in a real browser: python3 report_test.py PROGRAM [TEST...]. The runs are made by the program; what the page shows is compared with
the files they left."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "tools")]

import fixtures  # noqa: E402
from browser import Browser  # noqa: E402

PROGRAM = ""

# Of each visible canvas: the share of its pixels that differ from its most frequent colour, how many colours there are, and in a chart how many of its
# lines or bars can be seen, by their colour. Some may lie below others.
CANVASES = """[...document.querySelectorAll("canvas")].filter((canvas) => canvas.offsetParent !== null).map((canvas) => {
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", {willReadFrequently: true});
  copy.drawImage(canvas, 0, 0);
  const pixels = new Uint32Array(copy.getImageData(0, 0, canvas.width, canvas.height).data.buffer);
  const counts = new Map();
  for (const pixel of pixels) counts.set(pixel, (counts.get(pixel) || 0) + 1);
  const sets = Chart.getChart(canvas)?.data.datasets ?? null;
  const seen = sets?.filter((set) => {
    const [red, green, blue] = (set.borderColor || set.backgroundColor).match(/[0-9a-f]{2}/gi).map((part) => parseInt(part, 16));
    const near = (a, b) => Math.abs(a - b) <= 12;
    let pixels = 0;
    for (const [pixel, number] of counts) {
      if (pixel >>> 24 > 60 && near(pixel & 255, red) && near(pixel >>> 8 & 255, green) && near(pixel >>> 16 & 255, blue)) pixels += number;
    }
    return pixels >= 20;
  }).length;
  return {seen, sets: sets?.length, label: canvas.getAttribute("aria-label"), drawn: 1 - Math.max(...counts.values()) / pixels.length, colours: counts.size};
})"""

# Texts whose contrast with what is behind them is below 4.5 (3 for large ones), by the formula of WCAG 2.
CONTRAST = """(() => {
  const parse = (text) => { const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number); return [r, g, b, a]; };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const light = (colour) => { const [r, g, b] = colour.map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const bad = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let checked = 0;
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || node.closest("script, noscript, style") || node.offsetParent === null) continue;
    const layers = [];
    for (let at = node; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
    // A bar lies below its text without being its ancestor.
    const bar = node.closest("td.bar")?.querySelector("i");
    if (bar) layers.unshift(parse(getComputedStyle(bar).backgroundColor));
    const back = layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255, 1]);
    const style = getComputedStyle(node);
    const front = over(parse(style.color), back);
    const [a, b] = [light(front), light(back)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    ++checked;
    if (ratio < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5)) bad.push(`${walker.currentNode.textContent.trim()}: ${ratio.toFixed(2)}`);
  }
  return {checked, bad};
})()"""

FIGURES = """Object.fromEntries([...document.querySelectorAll(".figure")].map((figure) =>
  [figure.querySelector("dt").textContent, figure.querySelector("dd").childNodes[0].textContent]))"""

# The chart with this heading.
CHART = """Chart.getChart([...document.querySelectorAll(".card")].find((card) => !card.hidden && card.querySelector("h3")?.textContent.startsWith(%s)).querySelector("canvas"))"""


def chart(title):
    return CHART % json.dumps(title)


# The colours in the legend of the landscape, and in the table of the runs.
PATH_COLOURS = "[...document.querySelectorAll('.landscape .legend line')].map((line) => line.getAttribute('stroke'))"
RUN_COLOURS = "[...document.querySelectorAll('.overview .swatch line')].map((line) => line.getAttribute('stroke'))"
CELLS = "[...document.querySelectorAll('.pivot tbody tr')].map((row) => [...row.children].map((cell) => cell.textContent))"


def column(page, table, number):
    return page.evaluate(f"[...document.querySelectorAll({json.dumps(table + ' tbody tr')})].map((row) => row.children[{number}].textContent)")


class ReportTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="starling-report-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.runs = {}
        for strategy in ("sync", "async"):
            cls.runs[strategy] = fixtures.train(PROGRAM, cls.folder, strategy, "--strategy", strategy, "--workers", "4", "--fabric", "sim", "--delay", "one:30ms")
        cls.runs["alone"] = fixtures.train(PROGRAM, cls.folder, "alone")
        cls.runs["numbers"] = fixtures.train(PROGRAM, cls.folder, "numbers", "--data", "quadratic:samples=600,dimension=4", "--model", "dense 1", "--lr", "0.001")
        cls.runs["many"] = fixtures.train(PROGRAM, cls.folder, "many", "--strategy", "sync", "--workers", "40", "--fabric", "sim", "--epochs", "2")
        cls.runs["lost"] = fixtures.train(PROGRAM, cls.folder, "lost", "--lr", "1e30", "--optimizer", "sgd")
        cls.runs["wild"] = fixtures.train(PROGRAM, cls.folder, "wild", "--lr", "1e5", "--optimizer", "sgd")
        cls.comparison = fixtures.comparison(PROGRAM, os.path.join(cls.folder, "comparison"))
        cls.landscape = fixtures.landscape(os.path.join(cls.folder, "landscape"), (cls.runs["sync"][0], cls.runs["async"][0]))
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)

    def report(self, *paths, flags=(), name="report.html"):
        out = os.path.join(self.folder, name)
        done = subprocess.run([PROGRAM, "report", *paths, "--out", out, *flags], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.strip(), out)
        return "file://" + out

    def open(self, *paths, **options):
        flags = options.pop("flags", ())
        page = self.browser.open(self.report(*paths, flags=flags), **options)
        self.addCleanup(self.check_page, page)
        return page

    def check_page(self, page):
        """What holds for every page, whatever was done with it."""
        self.assertEqual(page.complaints, [])
        self.assertEqual([address for address in page.requests if not address.startswith("data:")], page.requests[:1], "a page asks for nothing but itself")

    def check_drawn(self, page, at_least):
        canvases = page.evaluate(CANVASES)
        self.assertGreaterEqual(len(canvases), at_least)
        for canvas in canvases:
            self.assertGreater(canvas["drawn"], 0.004, canvas)
            self.assertGreater(canvas["colours"], 3, canvas)
            if canvas.get("sets") is not None:
                self.assertGreater(canvas["seen"], 0, canvas)
            self.assertTrue(canvas["label"], "a canvas without a description")

    def everything(self):
        return [self.comparison, self.landscape, self.runs["sync"][0], self.runs["async"][0]]

    def test_figures_of_one_run_are_those_of_its_result(self):
        path, result = self.runs["async"]
        with open(os.path.join(path, "result.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["test_accuracy"], result["test_accuracy"])
        page = self.open(path)
        figures = page.evaluate(FIGURES)
        self.assertEqual(figures["Test accuracy"], f"{100 * result['test_accuracy']:.2f} %")
        self.assertEqual(figures["Test loss"], f"{result['test_loss']:.4f}")
        self.assertEqual(figures["Training loss"], f"{result['train_loss']:.4f}")
        self.assertEqual(figures["Samples"], f"{result['samples']:,}")
        self.assertEqual(figures["Virtual time"], f"{result['seconds']:.3g} s")
        self.assertEqual(figures["Idle"], f"{100 * result['idle_fraction']:.1f} %")
        self.assertAlmostEqual(float(figures["Staleness"]), result["staleness"]["version"]["mean"], delta=0.005 * result["staleness"]["version"]["mean"])
        self.check_drawn(page, 9)

    def test_lines_are_those_of_the_metrics(self):
        path, _ = self.runs["async"]
        with open(os.path.join(path, "metrics.jsonl"), encoding="utf-8") as file:
            records = [json.loads(line) for line in file]
        page = self.open(path)
        tested = [record for record in records if "test_accuracy" in record]
        for axis in ("samples", "step", "epoch", "seconds"):
            page.evaluate(f"document.querySelector('[data-choice={axis}]').click()")
            points = page.evaluate(chart("Test accuracy") + ".data.datasets[0].data")
            self.assertEqual(len(points), len(tested))
            for point, record in zip(points, tested):
                self.assertAlmostEqual(point["x"], record[axis], delta=1e-6 * (1 + record[axis]))
                self.assertAlmostEqual(point["y"], 100 * record["test_accuracy"], places=4)
            self.assertEqual(page.evaluate(f"document.querySelector('[data-choice={axis}]').getAttribute('aria-pressed')"), "true")
        self.assertEqual(page.evaluate(chart("Test accuracy") + ".options.scales.x.title.text"), "virtual time of training, s")
        steps = [record for record in records if record["kind"] == "step"]
        batches = page.evaluate(chart("Loss") + ".data.datasets.find((set) => set.label.startsWith('batches')).data")
        self.assertEqual(len(batches), len(steps))
        for field, title in (("weight_norm", "Norm of the weights"), ("gradient_norm", "Norm of the gradient"), ("staleness", "Staleness")):
            values = page.evaluate(chart(title) + ".data.datasets[0].data.map((point) => point.y)")
            self.assertAlmostEqual(sum(values), sum(record[field] for record in records if record.get(field) is not None), delta=1e-4 * sum(values), msg=title)

    def test_scale_of_the_loss_can_be_logarithmic(self):
        page = self.open(self.runs["alone"][0])
        self.assertEqual(page.evaluate(chart("Loss") + ".options.scales.y.type"), "linear")
        page.evaluate("document.querySelector('[data-choice=logarithmic]').click()")
        self.assertEqual(page.evaluate(chart("Loss") + ".options.scales.y.type"), "logarithmic")
        self.assertEqual(page.evaluate(chart("Loss") + ".options.scales.x.title.text"), "samples")
        page.evaluate("document.querySelector('[data-choice=seconds]').click()")
        self.assertEqual(page.evaluate(chart("Loss") + ".options.scales.x.title.text"), "time of training, s")
        self.check_drawn(page, 4)

    def test_histogram_is_that_of_the_result(self):
        path, result = self.runs["async"]
        page = self.open(path)
        with open(os.path.join(path, "result.json"), encoding="utf-8") as file:
            histograms = json.load(file)["histograms"]
        for choice in ("version", "gradient_sets"):
            page.evaluate(f"document.querySelector('[data-choice={choice}]').click()")
            shown = page.evaluate(chart("Staleness of the updates") + ".data")
            shares = dict(zip(shown["labels"], shown["datasets"][0]["data"]))
            total = sum(number for _, number in histograms[choice])
            self.assertEqual(total, result["updates"]["applied"])
            for value, number in histograms[choice]:
                self.assertAlmostEqual(shares[f"{value:,}"], 100 * number / total, places=6)
            self.assertAlmostEqual(sum(shares.values()), 100, places=6)

    def test_time_of_the_workers_is_that_of_the_result(self):
        path, result = self.runs["sync"]
        page = self.open(path)
        sets = page.evaluate(chart("Whose time") + ".data.datasets.map((set) => [set.label, set.data])")
        for name, values in sets:
            self.assertEqual(values, [worker[f"{name}_seconds"] for worker in result["workers_time"]])

    def test_many_workers_are_summed_up(self):
        page = self.open(self.runs["many"][0])
        self.assertEqual(page.evaluate(chart("Whose time") + ".data.labels.length"), 40)
        text = page.evaluate("document.querySelector('.run-part').textContent")
        self.assertIn("40 workers", text)
        self.assertIn("third quarter", text)
        self.check_drawn(page, 8)

    def test_classes_are_those_of_evaluate(self):
        path, _ = self.runs["sync"]
        done = subprocess.run([PROGRAM, "evaluate", path, "--json"], capture_output=True, text=True, check=True)
        wanted = json.loads(done.stdout.strip().split("\n")[-1])
        page = self.open(path)
        rows = page.evaluate("""[...document.querySelectorAll(".run-part [aria-label='Scores of the classes'] tr")].slice(1).map((row) => [...row.children].map((cell) => cell.textContent))""")
        for row, score in zip(rows, wanted["classes"] + [dict(wanted["mean"], name="mean"), dict(wanted["weighted_mean"], name="weighted mean")]):
            self.assertEqual(row[:4], [score["name"], *(f"{100 * score[key]:.2f} %" for key in ("precision", "recall", "f1"))])
        cells = page.evaluate("[...document.querySelectorAll('.confusion tbody tr')].map((row) => [...row.querySelectorAll('td')].map((cell) => Number(cell.textContent.replaceAll(',', ''))))")
        self.assertEqual(cells, wanted["confusion"])

    def test_runs_side_by_side_have_one_colour_in_all_charts(self):
        page = self.open(self.runs["sync"][0], self.runs["async"][0], self.runs["alone"][0])
        self.check_drawn(page, 10)
        colours = page.evaluate("""[...document.querySelectorAll(".course canvas")].filter((canvas) => canvas.offsetParent).map((canvas) =>
          Object.fromEntries(Chart.getChart(canvas).data.datasets.map((set) => [set.label, set.borderColor])))""")
        known = {}
        for sets in colours:
            for name, colour in sets.items():
                self.assertEqual(known.setdefault(name, colour), colour)
        self.assertEqual(len(set(known.values())), 3)
        self.assertEqual(page.evaluate("document.querySelector('[data-choice=seconds]').click(), " + chart("Test loss") + ".options.scales.x.title.text"),
                         "time of training, s (virtual where simulated)")
        text = page.evaluate("document.querySelector('.configuration table').textContent")
        self.assertIn("strategy.name", text)
        self.assertNotIn("optimizer.lr", text, "keys that are the same everywhere are in the fold-out only")
        before = page.evaluate(chart("Test loss") + ".data.datasets.length")
        page.evaluate("document.querySelector('.overview input[type=checkbox]').click()")
        self.assertEqual(page.evaluate(chart("Test loss") + ".data.datasets.length"), before - 1)
        page.evaluate("document.querySelector('.overview input[type=checkbox]').click()")
        self.assertEqual(page.evaluate(chart("Test loss") + ".data.datasets.length"), before)

    def test_details_follow_the_run_that_is_chosen(self):
        page = self.open(self.runs["sync"][0], self.runs["many"][0])
        labels = chart("Whose time went where, by worker") + ".data.labels.length"
        self.assertEqual(page.evaluate(labels), 4)
        page.evaluate(f"(() => {{ const select = document.querySelector('.run-part select'); select.value = {json.dumps(self.runs['many'][0])}; select.dispatchEvent(new Event('change')); }})()")
        self.assertEqual(page.evaluate(labels), 40)

    def test_a_comparison_can_be_sorted_by_mouse_and_keyboard(self):
        page = self.open(self.comparison)
        pivot = page.evaluate("[...document.querySelectorAll('.pivot tbody tr')].map((row) => [...row.children].map((cell) => cell.textContent))")
        self.assertEqual(pivot[1][0], "async")
        self.assertEqual(pivot[1][3], "NC")
        self.assertRegex(pivot[1][2], r"^83\.00 \(1 of 2 NC\)$")
        self.assertRegex(pivot[0][1], r"^\d\d\.\d\d ± \d+\.\d\d$")
        runs = [(run["seed"], run["test_accuracy"]) for run in self.cells()[1]["runs"]]
        self.assertEqual(pivot[0][2][:5], f"{50 * sum(accuracy for _, accuracy in runs):.2f}")

        def click(number):
            page.evaluate(f"document.querySelectorAll('.cells th button')[{number}].click()")
            return page.evaluate(f"document.querySelectorAll('.cells th')[{number}].getAttribute('aria-sort')")

        def means():
            return [None if text == "NC" else float(text.split()[0]) for text in column(page, ".cells", 2)]

        self.assertEqual(click(2), "descending")
        values = means()
        self.assertEqual(values[:-1], sorted(values[:-1], reverse=True))
        self.assertIsNone(values[-1], "what has no value is last")
        self.assertEqual(click(2), "ascending")
        values = means()
        self.assertEqual(values[:-1], sorted(values[:-1]))
        self.assertIsNone(values[-1], "what has no value is last in this order too")
        page.evaluate("document.querySelectorAll('.cells th button')[1].focus()")
        page.key("Enter", "\r")
        self.assertEqual(column(page, ".cells", 1), ["2", "2", "5", "5", "10", "10"], "numbers in texts are sorted as numbers")
        page.key(" ", " ")
        self.assertEqual(column(page, ".cells", 1), ["10", "10", "5", "5", "2", "2"])
        # Its runs come along, one of each cell drawn.
        self.assertEqual(page.evaluate("document.querySelectorAll('.overview tbody tr').length"), 4)
        self.assertEqual(page.evaluate("document.querySelectorAll('.overview input:checked').length"), 2)

    def cells(self):
        with open(os.path.join(self.comparison, "comparison.json"), encoding="utf-8") as file:
            return json.load(file)["cells"]

    def test_the_landscape_is_drawn_and_turns(self):
        page = self.open(self.landscape, width=1280, height=1000)
        canvases = page.evaluate(CANVASES)
        self.assertEqual(len(canvases), 2)
        for canvas in canvases:
            self.assertGreater(canvas["drawn"], 0.2, canvas)
        self.assertIn("from 2.4217 to 0.2468", canvases[0]["label"])
        picture = "document.querySelector('canvas.turns').toDataURL()"
        first = page.evaluate(picture)
        box = page.evaluate("(({x, y, width, height}) => [x + width / 2, y + height / 2])(document.querySelector('canvas.turns').getBoundingClientRect())")
        page.drag(box, (box[0] + 90, box[1] + 20))
        turned = page.evaluate(picture)
        self.assertNotEqual(first, turned)
        page.evaluate("document.querySelector('canvas.turns').focus()")
        page.key("ArrowLeft")
        self.assertNotEqual(page.evaluate(picture), turned)

    def test_a_phone_has_no_sideways_scrolling(self):
        page = self.open(*self.everything(), width=360, height=740)
        self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), 360)
        wide = page.evaluate("""[...document.querySelectorAll("body *")].filter((node) => !node.closest(".box") && node.getBoundingClientRect().right > 360.5).map((node) => node.tagName + "." + node.className)""")
        self.assertEqual(wide, [])
        self.check_drawn(page, 12)

    def test_every_text_can_be_read_by_day_and_by_night(self):
        page = self.open(*self.everything(), self.runs["lost"][0])
        shades = []
        for dark in (False, True):
            page.dark(dark)
            contrast = page.evaluate(CONTRAST)
            self.assertGreater(contrast["checked"], 200)
            self.assertEqual(contrast["bad"], [])
            shades.append(page.evaluate("[getComputedStyle(document.body).backgroundColor, " + chart("Test loss") + ".data.datasets[0].borderColor, " + chart("Test loss") + ".options.scales.x.ticks.color]"))
            self.check_drawn(page, 12)
        for day, night in zip(*shades):
            self.assertNotEqual(day, night)

    def changed(self, name, change):
        """The comparison again in another folder, with a change to its file."""
        path = os.path.join(self.folder, name)
        shutil.copytree(self.comparison, path)
        with open(os.path.join(path, "comparison.json"), encoding="utf-8") as file:
            value = json.load(file)
        change(value)
        for cell in value["cells"]:
            cell["summary"] = {key: fixtures.summary(cell["runs"], key) for key in ("test_accuracy", "staleness", "seconds", "bytes_sent")}
        return fixtures.write_json(path, "comparison.json", value)

    def test_runs_that_diverged_leave_the_scale_to_the_others(self):
        self.assertEqual(self.runs["wild"][1]["ending"], "diverged")
        page = self.open(self.runs["sync"][0], self.runs["wild"][0])
        for scale in ("linear", "logarithmic"):
            page.evaluate(f"document.querySelector('[data-choice={scale}]').click()")
            for title in ("Training loss", "Norm of the weights", "Norm of the gradient", "Learning rate"):
                drawn = page.evaluate(f"(() => {{ const chart = {chart(title)}; return [chart.scales.y.type, chart.scales.y.max, chart.data.datasets.map((set) => set.data.map((point) => point.y)), "
                                      "chart.canvas.closest('.card').textContent]; })()")
                self.assertEqual(drawn[0], scale, title)
                self.assertAlmostEqual(drawn[1] / max(drawn[2][0]), 1.5, delta=0.2, msg=title)
                self.assertIn("Runs that diverged leave the chart", drawn[3])
        text = page.evaluate("""(() => { const details = """ + chart("Learning rate") + """.canvas.closest(".card").querySelector("details"); details.open = true;
          return new Promise((done) => setTimeout(() => done(details.textContent), 100)); })()""")
        self.assertIn("100,000", text, "the table behind the chart has what the chart leaves out")
        page = self.open(self.runs["wild"][0])
        self.assertEqual(page.evaluate(chart("Loss") + ".scales.y.type"), "logarithmic")
        self.assertIn("since the run diverged", page.evaluate("document.body.innerText"))
        self.assertIn("It did not finish (diverged)", page.evaluate("document.body.innerText"))

    def test_an_interrupted_comparison_does_not_look_finished(self):
        def interrupt(value):
            for i, cell in enumerate(value["cells"]):
                cell["runs"] = cell["runs"][:1] if i == 0 else []
        path = self.changed("interrupted", interrupt)
        for run in os.listdir(os.path.join(path, "cells")):
            if run != "sync-2-1":
                shutil.rmtree(os.path.join(path, "cells", run))
        page = self.open(path)
        self.assertIn("1 of 12 runs done; the same command goes on", page.evaluate("document.querySelector('.comparison').innerText"))
        self.assertNotIn("finished", page.evaluate("document.getElementById('top').innerText"))
        self.assertEqual(page.evaluate(FIGURES), {})
        self.assertEqual(page.evaluate("document.querySelectorAll('.overview tbody tr').length"), 1)
        cells = page.evaluate(CELLS)
        self.assertRegex(cells[0][1], r"^\d\d\.\d\d \(1 of 2 seeds\)$")
        self.assertEqual(cells[1][1], "–")

    def test_one_seed_is_called_so(self):
        def one_seed(value):
            value["seeds"] = [1]
            for cell in value["cells"]:
                del cell["runs"][1:]
        page = self.open(self.changed("one-seed", one_seed))
        caption = page.evaluate("document.querySelector('caption').textContent")
        self.assertIn("One seed", caption)
        self.assertNotIn("1 seeds", caption)

    def test_runs_that_failed_are_told(self):
        def fail(value):
            for i, j in ((0, 0), (1, 0), (1, 1), (5, 0)):
                value["cells"][i]["runs"][j].update(ending="failed", converged=False, reason="the disk is full")
        page = self.open(self.changed("failed", fail))
        cells = page.evaluate(CELLS)
        self.assertRegex(cells[0][1], r"^\d\d\.\d\d \(1 of 2 failed\)$")
        self.assertEqual(cells[0][2], "failed")
        self.assertEqual(cells[1][3], "NC (1 of 2 failed)")
        self.assertIn("the disk is full", page.evaluate("document.querySelectorAll('.pivot tbody td')[1].firstChild.title"))
        self.assertIn("Failed", page.evaluate("document.querySelector('.cells thead').textContent"))

    def test_a_comparison_has_a_chart(self):
        page = self.open(self.comparison)
        shown = page.evaluate(f"(() => {{ const chart = {chart('Test accuracy by workers')}; return [chart.scales.x.ticks.map((tick) => tick.label), chart.data.datasets.map((set) => "
                              "[set.label, set.data.map((point) => [point.label, point.y, point.deviation, point.partly]), set.lost.map((lost) => lost.label)])]; })()")
        self.assertEqual(shown[0], ["2", "5", "10"])
        self.assertEqual([set[0] for set in shown[1]], ["sync", "async"])
        for set, cells in zip(shown[1], (self.cells()[:3], self.cells()[3:])):
            known = [cell for cell in cells if cell["summary"]["test_accuracy"]["mean"] is not None]
            self.assertEqual([point[0] for point in set[1]], [cell["labels"][1] for cell in known])
            for point, cell in zip(set[1], known):
                summary = cell["summary"]["test_accuracy"]
                self.assertAlmostEqual(point[1], 100 * summary["mean"])
                self.assertAlmostEqual(point[2], 100 * (summary["deviation"] or 0))
                self.assertEqual(point[3], summary["not_converged"] > 0)
        self.assertEqual([set[2] for set in shown[1]], [[], ["10"]])
        self.check_drawn(page, 10)

    def test_values_are_written_as_their_deviations_need(self):
        def small(value):
            value["values"] = ["seconds", "bytes_sent"]
            for cell in value["cells"]:
                for run in cell["runs"]:
                    run.update(seconds=0.0012 + 0.0001 * run["seed"], bytes_sent=5_000_000_000 + 100_000_000 * run["seed"])
        page = self.open(self.changed("small", small))
        cells = page.evaluate(CELLS)
        self.assertEqual(cells[0][1], "0.00135 ± 0.00007")
        self.assertEqual(cells[2][1], "5.150 ± 0.071")
        heads = page.evaluate("[...document.querySelectorAll('.comparison h3')].map((head) => head.textContent)")
        self.assertIn("Virtual time, s", heads)
        self.assertIn("Bytes sent, GB", heads)

    def test_the_first_runs_drawn_are_spread_over_the_rows(self):
        labels = [(method, workers) for method in "abcd" for workers in ("2", "3", "4", "5")]
        paths = []
        for name in ("spread", "spread-again"):
            folder = os.path.join(self.folder, name)
            cells = []
            for method, workers in labels:
                path = f"cells/{method}-{workers}"
                shutil.copytree(self.runs["alone"][0], os.path.join(folder, path))
                runs = [{"seed": 1, "path": path, "ending": "finished", "converged": True, "reason": "", "test_accuracy": 0.5}]
                cells.append({"labels": [method, workers], "runs": runs, "summary": {"test_accuracy": fixtures.summary(runs, "test_accuracy")}})
            paths.append(fixtures.write_json(folder, "comparison.json", {
                "title": "", "axes": [{"name": "method", "labels": list("abcd")}, {"name": "workers", "labels": ["2", "3", "4", "5"]}], "rows": ["method"], "columns": ["workers"],
                "seeds": [1], "values": ["test_accuracy"], "cells": cells}))
        ticked = "[...document.querySelectorAll('.overview .run')].filter((run) => run.querySelector('input').checked).map((run) => run.textContent)"
        page = self.open(paths[0])
        self.assertEqual(page.evaluate(ticked), [f"{method}, workers {workers}, seed 1" for method in "abcd" for workers in ("2", "3")])
        page.evaluate("[...document.querySelectorAll('.overview button')].find((button) => button.textContent === 'None').click()")
        self.assertEqual(page.evaluate(ticked), [])
        page.evaluate("[...document.querySelectorAll('.overview button')].find((button) => button.textContent === 'One of each cell').click()")
        self.assertEqual(len(page.evaluate(ticked)), 16)
        # Two comparisons with the same labels: each has its heading, and its own runs.
        page = self.open(*paths)
        self.assertEqual(page.evaluate("[...document.querySelectorAll('.comparison h2')].map((head) => head.textContent)"), paths)
        names = page.evaluate(ticked)
        self.assertEqual(len(names), 8)
        self.assertEqual(sum(name.startswith(paths[1] + ": ") for name in names), 4, names)

    def test_ticking_a_run_keeps_the_place_in_the_table(self):
        copies = []
        for i in range(16):
            copies.append(os.path.join(self.folder, f"copy{i:02}"))
            shutil.copytree(self.runs["async"][0], copies[-1])
        page = self.open(*copies)
        page.evaluate("(() => { const box = document.querySelector('.overview .box'); box.scrollTop = 150; box.querySelectorAll('input')[10].focus({preventScroll: true}); })()")
        page.key(" ", " ")
        state = page.evaluate("(() => { const box = document.querySelector('.overview .box'); return [box.scrollTop, [...box.querySelectorAll('input')].indexOf(document.activeElement), box.querySelectorAll('input:checked').length]; })()")
        self.assertEqual(state, [150, 10, 9])
        # The ninth bar has the colour of another, but not its look.
        looks = page.evaluate(chart("Staleness of the updates") + ".data.datasets.map((set) => set.backgroundColor + ' ' + set.borderWidth)")
        self.assertEqual(len(set(looks)), 9)

    def test_a_large_landscape_is_drawn(self):
        page = self.open(fixtures.landscape(os.path.join(self.folder, "large"), size=400))
        for canvas in page.evaluate(CANVASES):
            self.assertGreater(canvas["drawn"], 0.2, canvas)

    def test_the_landscape_tells_many_paths_apart_and_names_its_scale(self):
        page = self.open(fixtures.landscape(os.path.join(self.folder, "ten"), [f"runs/{i}" for i in range(10)]), width=360, height=740)
        # What is drawn, in its order: dashes, and texts with where they reach from and to (those of the axes are not turned).
        calls = page.evaluate("""(() => {
          const calls = [];
          const kind = CanvasRenderingContext2D.prototype;
          const {setLineDash, fillText, stroke} = kind;
          const note = (context, what) => calls.push([context.canvas.className, ...what]);
          kind.setLineDash = function (dash) { if (dash.length > 0) note(this, ["dash"]); setLineDash.call(this, dash); };
          kind.stroke = function (...all) { if (Math.abs(this.lineWidth - 2.6) < 0.01) note(this, ["path"]); stroke.apply(this, all); };
          kind.fillText = function (text, x, y, ...more) {
            const {a, b, e} = this.getTransform();
            note(this, ["text", text, this.textAlign, b === 0 ? x - this.measureText(text).width : null, b < 0 && a < 1e-9 ? e + 6 : null]);
            fillText.call(this, text, x, y, ...more);
          };
          refreshCharts();
          Object.assign(kind, {setLineDash, fillText, stroke});
          return calls; })()""")
        surface = [call[1:] for call in calls if call[0] == "turns"]
        plan = [call[1:] for call in calls if call[0] == ""]
        self.assertIn(["dash"], surface)
        self.assertIn("(logarithmic)", [call[1] for call in surface if call[0] == "text"])
        self.assertNotIn("−0", [call[1] for call in surface + plan if call[0] == "text"])
        last_path = max(i for i, call in enumerate(plan) if call[0] == "path")
        contours = [i for i, call in enumerate(plan) if call[0] == "text" and call[2] == "center" and re.match(r"0\.\d|[1-9]\.\d", call[1])]
        self.assertTrue(contours and min(contours) > last_path, "labels of contours come after the paths")
        name = next(call[4] for call in plan if call[0] == "text" and call[1].startswith("component 2"))
        self.assertTrue(all(call[3] > name for call in plan if call[0] == "text" and call[2] == "right"), "ticks beside the name of the axis")

    def test_paths_have_the_colours_of_their_runs_however_they_are_called(self):
        for names in ((self.runs["sync"][0] + "/../sync/", self.runs["async"][0]), ("sync", "./async"), ("../" + os.path.basename(self.folder) + "/./sync", "other/../async")):
            path = fixtures.landscape(os.path.join(self.folder, "spelt"), names)
            page = self.open(path, self.runs["async"][0], self.runs["sync"][0])
            self.assertEqual(page.evaluate(PATH_COLOURS), page.evaluate(RUN_COLOURS)[::-1], names)

    def test_a_part_that_fails_leaves_the_others(self):
        def damage(value):
            value["rows"] = 5
        page = self.browser.open(self.report(self.changed("odd", damage), self.runs["sync"][0]))
        self.assertIn("The comparison cannot be shown", page.evaluate("document.body.innerText"))
        self.assertIn("Test accuracy", page.evaluate("document.querySelector('.course').innerText"))
        self.check_drawn(page, 6)

    def test_numbers_on_axes(self):
        page = self.open(self.runs["alone"][0])
        self.assertEqual(page.evaluate("[number(-0), number(-0.0001), number(-1e-9, 3), fixed(-0.001, 2), fixed(-1.5, 1)]"), ["0", "−0.0001", "−1.0e−9", "0.00", "−1.5"])
        self.assertEqual(page.evaluate("[logarithmicTicks(0.15, 30), logarithmicTicks(1e-3, 1e3), logarithmicTicks(1.1, 1.45)]"),
                         [[0.2, 0.5, 1, 2, 5, 10, 20], [0.001, 0.01, 0.1, 1, 10, 100, 1000], [1.1, 1.2, 1.3, 1.4]])
        page.evaluate("document.querySelector('[data-choice=logarithmic]').click()")
        labels = page.evaluate(chart("Loss") + ".scales.y.ticks.map((tick) => tick.label)")
        self.assertGreaterEqual(len(labels), 2)
        self.assertTrue(all(re.match(r"[\d.,]+$", label) for label in labels), labels)

    def test_a_phone_keeps_the_names_of_rows_in_sight(self):
        page = self.open(*self.everything(), width=360, height=740)
        places = page.evaluate("""[".pivot", ".overview table"].map((name) => { const box = document.querySelector(name).closest(".box"); box.scrollLeft = 80;
          return [box.scrollLeft, box.querySelector("tbody tr").children[0].getBoundingClientRect().left - box.getBoundingClientRect().left]; })""")
        for scrolled, left in places:
            self.assertEqual(scrolled, 80)
            self.assertAlmostEqual(left, 0, delta=1)
        self.assertGreaterEqual(page.evaluate("document.querySelector('.overview input').getBoundingClientRect().height"), 24)

    def test_paper_has_the_configuration_of_one_run(self):
        page = self.open(self.runs["alone"][0])
        visible = "(() => { const list = document.querySelector('.on-paper'); return list !== null && list.offsetParent !== null && list.textContent.includes('optimizer.lr'); })()"
        self.assertFalse(page.evaluate(visible))
        page.call("Emulation.setEmulatedMedia", media="print")
        self.assertTrue(page.evaluate(visible))

    def test_it_prints(self):
        page = self.open(*self.everything(), dark=True)
        paper = page.pdf()
        self.assertTrue(paper.startswith(b"%PDF"))
        pages = len(re.findall(rb"/Type\s*/Page\b", paper))
        self.assertTrue(2 <= pages <= 14, pages)
        size = re.search(rb"/MediaBox\s*\[\s*0 0 ([\d.]+) ([\d.]+)", paper)
        self.assertAlmostEqual(float(size.group(1)), 595, delta=2)
        self.assertAlmostEqual(float(size.group(2)), 842, delta=2)
        self.assertFalse(page.evaluate("document.documentElement.classList.contains('printing')"), "the screen is dark again")

    def test_names_are_texts_and_nothing_else(self):
        name = "</script><script>window.harmed = true</script><img src=x onerror='window.harmed = true'>& \"quoted\" @DATA@"
        path = os.path.join(self.folder, name.replace("/", "\u2215"))
        shutil.copytree(self.runs["async"][0], path)
        page = self.open(path, self.runs["sync"][0], flags=("--title", name))
        self.assertIsNone(page.evaluate("window.harmed"))
        self.assertEqual(page.evaluate("document.title"), name)
        self.assertEqual(page.evaluate("document.querySelector('h1').textContent"), name)
        self.assertIn(path, page.evaluate("document.querySelector('.overview').textContent"))
        # The command is one a shell understands.
        command = page.evaluate("[...document.querySelectorAll('code')].map((each) => each.textContent)")[0]
        words = subprocess.run(["sh", "-c", "shift; printf '%s\\n' \"$@\"; eval \"set -- $1\"; printf '%s\\n' \"$4\"", "sh", "x", command], capture_output=True, text=True, check=True).stdout
        self.assertEqual(words.strip().split("\n")[-1], path + "/config.toml")

    def test_a_run_without_result_and_one_without_classes_say_so(self):
        path = os.path.join(self.folder, "unfinished")
        shutil.copytree(self.runs["sync"][0], path)
        os.remove(os.path.join(path, "result.json"))
        page = self.open(path)
        text = page.evaluate("document.body.innerText")
        self.assertIn("no result yet", text)
        self.assertIn("it is under way, or was stopped", text)
        self.check_drawn(page, 6)
        page = self.open(self.runs["numbers"][0])
        self.assertIn("Its answers are no classes", page.evaluate("document.body.innerText"))
        self.assertIn("It exchanged no updates", page.evaluate("document.body.innerText"))
        self.check_drawn(page, 3)

    def test_a_run_that_diverged_says_why(self):
        path, result = self.runs["lost"]
        self.assertEqual(result["ending"], "diverged")
        page = self.open(path)
        text = page.evaluate("document.body.innerText")
        self.assertIn("diverged", text)
        self.assertIn("Why: at step", text)

    def test_charts_have_tables_behind_them(self):
        page = self.open(self.runs["alone"][0])
        tables = page.evaluate("""(() => { const all = [...document.querySelectorAll(".course .card:not([hidden]) details")]; for (const each of all) each.open = true;
          return new Promise((done) => setTimeout(() => done(all.map((each) => each.querySelectorAll("tbody tr").length)), 100)); })()""")
        self.assertTrue(tables and all(rows > 0 for rows in tables), tables)

    def test_mistakes_are_told_and_leave_the_page_as_it_was(self):
        out = os.path.join(self.folder, "kept.html")
        self.report(self.runs["alone"][0], name="kept.html")
        with open(out, encoding="utf-8") as file:
            before = file.read()
        damaged = os.path.join(self.folder, "damaged")
        shutil.copytree(self.runs["alone"][0], damaged)
        with open(os.path.join(damaged, "metrics.jsonl"), "r+", encoding="utf-8") as file:
            lines = file.readlines()
            lines[4] = lines[4][:20] + "\n"
            file.seek(0)
            file.writelines(lines)
            file.truncate()
        for paths, message in (([damaged], "damaged/metrics.jsonl:5: "), ([self.runs["alone"][0], self.folder], "is neither a run"), (["/nowhere"], "there is no folder '/nowhere'"),
                               ([], "runs is required")):
            done = subprocess.run([PROGRAM, "report", *paths, "--out", out], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2, paths)
            self.assertIn(message, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 2 if not paths else 1, done.stderr)
        with open(out, encoding="utf-8") as file:
            self.assertEqual(file.read(), before)
        done = subprocess.run([PROGRAM, "report", self.runs["alone"][0], "--out", "/nowhere/report.html"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("/nowhere/report.html", done.stderr)

    def test_the_page_names_its_chart_library(self):
        with open(self.report(self.runs["alone"][0]).removeprefix("file://"), encoding="utf-8") as file:
            text = file.read()
        self.assertRegex(text, r"Chart\.js v[34]\.")
        self.assertIn("Permission is hereby granted, free of charge", text)
        self.assertNotIn("src=\"http", text)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
