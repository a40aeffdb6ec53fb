// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0

// The landscape as a surface that can be turned: patches sorted by depth and painted from back to front.

const kHeightOfBox = 0.62;
const kFirstTurn = {yaw: -0.6, pitch: 0.8};

// So many patches along a side are fine enough for the eye, and so many lines.
const kPatches = 75;
const kSurfaceLines = 24;

// Every so many places of a side, and its end.
function placesAlong(length) {
  const stride = Math.max(1, Math.ceil((length - 1) / kPatches));
  const places = [];
  for (let place = 0; place < length - 1; place += stride) places.push(place);
  places.push(length - 1);
  return places;
}

function surfacePatches(prepared) {
  const {fine, low, span, times} = prepared;
  const [ys, xs] = [placesAlong(fine.length), placesAlong(fine[0].length)];
  const [rows, columns] = [ys.length - 1, xs.length - 1];
  const at = (column, row) => {
    const z = fine[ys[row]][xs[column]];
    return [2 * xs[column] / (fine[0].length - 1) - 1, 2 * ys[row] / (fine.length - 1) - 1, 2 * kHeightOfBox * (z - low) / span - kHeightOfBox];
  };
  const patches = [];
  for (let row = 0; row < rows; ++row) {
    for (let column = 0; column < columns; ++column) {
      const corners = [at(column, row), at(column + 1, row), at(column + 1, row + 1), at(column, row + 1)];
      if (corners.some((corner) => Number.isNaN(corner[2]))) continue;
      const slope = Math.hypot(corners[1][2] - corners[0][2], corners[3][2] - corners[0][2]) * columns / 2;
      const lean = ((corners[1][2] - corners[0][2]) - (corners[3][2] - corners[0][2])) * columns / 2;
      const light = Math.min(Math.max(1.04 - 0.05 * slope + 0.1 * lean, 0.78), 1.14);
      const level = corners.reduce((sum, corner) => sum + corner[2], 0) / 4;
      const colour = viridis((level + kHeightOfBox) / (2 * kHeightOfBox)).map((value) => Math.min(255, Math.round(value * light)));
      // Lines are those of the grid, where it is not too fine for them.
      const lined = (index, places) => (times >= places[1] - places[0] && times > 1 ? places[index] % times === 0 : index % Math.ceil(places.length / kSurfaceLines) === 0);
      patches.push({corners, fill: `rgb(${colour.join(", ")})`, lines: [lined(row, ys), lined(column, xs)]});
    }
  }
  return patches;
}

function surfacePainter(canvas, prepared) {
  const turn = {...kFirstTurn};
  const patches = surfacePatches(prepared);
  const paint = () => paintSurface(canvas, prepared, patches, turn);
  let from = null;
  canvas.addEventListener("pointerdown", (event) => {
    from = [event.clientX, event.clientY, turn.yaw, turn.pitch];
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (from === null) return;
    turn.yaw = from[2] + (event.clientX - from[0]) * 0.009;
    turn.pitch = Math.min(Math.max(from[3] + (event.clientY - from[1]) * 0.006, 0.05), 1.5);
    requestAnimationFrame(paint);
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { from = null; });
  canvas.addEventListener("dblclick", () => { Object.assign(turn, kFirstTurn); paint(); });
  canvas.addEventListener("keydown", (event) => {
    const moves = {ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, 0.08], ArrowDown: [0, -0.08]};
    if (!moves[event.key]) return;
    event.preventDefault();
    turn.yaw += moves[event.key][0];
    turn.pitch = Math.min(Math.max(turn.pitch + moves[event.key][1], 0.05), 1.5);
    paint();
  });
  return paint;
}

// Parallel projection: a point of the box to the canvas, and how deep it lies.
function projection(turn, width, height) {
  // The longest diagonal of the floor, with room for the labels beside it.
  const scale = Math.min((width - 104) / (2 * Math.SQRT2), (height - 40) / 2.9);
  const [c, s] = [Math.cos(turn.yaw), Math.sin(turn.yaw)];
  const [cp, sp] = [Math.cos(turn.pitch), Math.sin(turn.pitch)];
  return ([x, y, z]) => {
    const across = c * x - s * y;
    const away = s * x + c * y;
    return [width / 2 + scale * across, height / 2 - scale * (z * cp + away * sp), away * cp - z * sp];
  };
}

function paintSurface(canvas, prepared, patches, turn) {
  const width = canvas.parentElement.clientWidth;
  const height = plotHeight(width);
  const context = sized(canvas, width, height);
  const project = projection(turn, width, height);
  paintBox(context, prepared, project, turn, width);
  const things = patches.map((patch) => {
    const corners = patch.corners.map(project);
    return {depth: corners.reduce((sum, corner) => sum + corner[2], 0) / 4, corners, patch};
  });
  const paths = pathsInBox(prepared).map((path) => withLengths({...path, points: path.points.map(project)}));
  for (const path of paths) {
    for (let i = 0; i + 1 < path.points.length; ++i) {
      // A little nearer than it is, so that a path on the surface is not half hidden in it.
      things.push({depth: (path.points[i][2] + path.points[i + 1][2]) / 2 - 0.12, path, i});
    }
  }
  things.sort((a, b) => b.depth - a.depth);
  for (const thing of things) (thing.patch ? paintPatch : paintSegment)(context, thing);
  for (const path of paths) paintPathFaintly(context, path);
}

function paintPatch(context, {corners, patch}) {
  context.beginPath();
  corners.forEach(([x, y], i) => (i === 0 ? context.moveTo(x, y) : context.lineTo(x, y)));
  context.closePath();
  context.fillStyle = patch.fill;
  context.strokeStyle = patch.fill;
  context.lineWidth = 0.8;
  context.fill();
  context.stroke();
  context.strokeStyle = "rgba(255, 255, 255, 0.28)";
  context.lineWidth = 0.7;
  const edge = (a, b) => {
    context.beginPath();
    context.moveTo(corners[a][0], corners[a][1]);
    context.lineTo(corners[b][0], corners[b][1]);
    context.stroke();
  };
  if (patch.lines[0]) edge(0, 1);
  if (patch.lines[1]) edge(0, 3);
}

function pathsInBox(prepared) {
  const {landscape, extent, low, span, height} = prepared;
  const styles = pathStyles(landscape);
  const unit = (value, [from, to]) => 2 * (value - from) / (to - from) - 1;
  return landscape.trajectories.map((path, i) => ({
    style: styles[i],
    points: path.points.filter((point) => isNumber(point.loss))
      .map((point) => [unit(point.x, extent.x), unit(point.y, extent.y), 2 * kHeightOfBox * (height(point.loss) - low) / span - kHeightOfBox]),
  })).filter((path) => path.points.length > 0);
}

// How long a path is on the canvas up to each of its points, so that its dashes go on from segment to segment.
function withLengths(path) {
  const lengths = [0];
  for (let i = 1; i < path.points.length; ++i) lengths.push(lengths[i - 1] + Math.hypot(path.points[i][0] - path.points[i - 1][0], path.points[i][1] - path.points[i - 1][1]));
  return {...path, lengths};
}

function paintSegment(context, {path, i}) {
  for (const [colour, width, dash] of [["rgba(255, 255, 255, 0.95)", 4.6, []], [path.style.colour, 2.6, path.style.dash]]) {
    context.beginPath();
    context.moveTo(path.points[i][0], path.points[i][1]);
    context.lineTo(path.points[i + 1][0], path.points[i + 1][1]);
    context.lineCap = dash.length > 0 ? "butt" : "round";
    context.setLineDash(dash);
    context.lineDashOffset = path.lengths[i];
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.stroke();
  }
  context.setLineDash([]);
}

// Once more over everything, so that what lies behind a hill can be guessed; and the two ends.
function paintPathFaintly(context, {points, style}) {
  context.save();
  context.globalAlpha = 0.4;
  context.beginPath();
  points.forEach(([x, y], i) => (i === 0 ? context.moveTo(x, y) : context.lineTo(x, y)));
  context.strokeStyle = style.colour;
  context.lineWidth = 1.6;
  context.stroke();
  context.restore();
  disc(context, points[0][0], points[0][1], 4.5, "#ffffff", style.colour, 2.4);
  disc(context, points[points.length - 1][0], points[points.length - 1][1], 5.5, style.colour, "#ffffff", 1.8);
}

// The floor with its grid, the axis of the loss, and the names of all three, on the sides that face the viewer.
function paintBox(context, prepared, project, turn, width) {
  const {extent, low, span, lossAt, landscape, logarithmic} = prepared;
  const floor = -kHeightOfBox;
  const narrow = width < 480;
  const line = (a, b) => {
    const [p, q] = [project(a), project(b)];
    context.beginPath();
    context.moveTo(p[0], p[1]);
    context.lineTo(q[0], q[1]);
    context.stroke();
  };
  const near = {y: Math.cos(turn.yaw) > 0 ? -1 : 1, x: Math.sin(turn.yaw) > 0 ? -1 : 1};
  const at = (value, [from, to]) => 2 * (value - from) / (to - from) - 1;
  context.lineWidth = 1;
  context.strokeStyle = cssValue("--grid");
  context.fillStyle = cssValue("--muted");
  context.textAlign = "center";
  const label = (text, place, outward, distance) => {
    const [x, y] = project(place);
    const [u, v] = project(place.map((value, i) => value + outward[i]));
    const length = Math.hypot(u - x, v - y) || 1;
    context.fillText(text, x + distance * (u - x) / length, y + distance * (v - y) / length);
  };
  for (const tick of niceTicks(...extent.x, narrow ? 3 : 5)) {
    const x = at(tick, extent.x);
    line([x, -1, floor], [x, 1, floor]);
    label(number(tick, 3), [x, near.y, floor], [0, near.y, 0], 16);
  }
  for (const tick of niceTicks(...extent.y, narrow ? 3 : 5)) {
    const y = at(tick, extent.y);
    line([-1, y, floor], [1, y, floor]);
    label(number(tick, 3), [near.x, y, floor], [near.x, 0, 0], 16);
  }
  label("component 1", [0, near.y, floor], [0, near.y, 0], 44);
  label("component 2", [near.x, 0, floor], [near.x, 0, 0], narrow ? 44 : 62);
  paintHeightAxis(context, {project, near, floor, low, span, lossAt, line, names: [landscape.loss || "loss", ...(logarithmic ? ["(logarithmic)"] : [])]});
}

function paintHeightAxis(context, {project, near, floor, low, span, lossAt, line, names}) {
  // The upright edge that is farthest to the left on the canvas.
  const edges = [[1, 1], [1, -1], [-1, 1], [-1, -1]].sort((a, b) => project([...a, 0])[0] - project([...b, 0])[0]);
  const [x, y] = edges[0];
  context.strokeStyle = cssValue("--line");
  line([x, y, floor], [x, y, -floor]);
  for (const [u, v] of [[-1, -1], [1, -1], [1, 1], [-1, 1]]) {
    if (u !== near.x || v !== near.y) line([u, v, floor], [u, v, floor + 0.02]);
  }
  context.textAlign = "right";
  const steps = 5;
  for (let i = 0; i <= steps; ++i) {
    const [px, py] = project([x, y, floor + 2 * kHeightOfBox * i / steps]);
    context.fillRect(px - 5, py, 5, 1);
    context.fillText(number(lossAt(low + span * i / steps), 2), px - 8, py);
  }
  const [px, py] = project([x, y, -floor]);
  // Two short lines that end at the axis: to the right of it the surface would cover them.
  names.forEach((name, i) => context.fillText(name, Math.max(px, context.measureText(name).width + 2), Math.max(py - 16, 8 + 15 * (names.length - 1)) - 15 * (names.length - 1 - i)));
}
