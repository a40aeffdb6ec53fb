// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
"use strict";

// Numbers as people read them, and elements made without any markup in texts: names come from outside.

const kNone = "–";

function isNumber(value) { return typeof value === "number" && Number.isFinite(value); }

function count(value) { return isNumber(value) ? value.toLocaleString("en-GB", {maximumFractionDigits: 0}) : kNone; }

// The least and the largest of any number of values, null where there is none. Math.min(...) breaks down at about 100,000.
function extremes(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (!isNumber(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? {low, high} : null;
}

// Texts of numbers with a true minus, and without one before nothing.
function signed(text) { return (/[1-9]/.test(text) ? text : text.replace("-", "")).replace("-", "−"); }

// Significant digits, thousands separated; very small and very large ones with a power of ten.
function number(value, digits = 4) {
  if (!isNumber(value)) return kNone;
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e12)) return value.toExponential(Math.max(digits - 2, 0)).replace("e+", "e").replace("e-", "e−").replace("-", "−");
  const whole = size >= 1 ? Math.floor(Math.log10(size)) + 1 : 0;
  const fraction = size >= 1 || size === 0 ? Math.max(digits - whole, 0) : digits - 1 - Math.floor(Math.log10(size));
  return signed(value.toLocaleString("en-GB", {maximumFractionDigits: Math.min(fraction, 20)}));
}

function percent(value, digits = 2) { return isNumber(value) ? `${(100 * value).toFixed(digits)} %` : kNone; }
function loss(value) { return isNumber(value) ? (Math.abs(value) < 1000 && Math.abs(value) >= 0.0001 ? value.toFixed(4) : number(value, 4)) : kNone; }

const kBytes = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]];
function bytesUnit(largest) { return kBytes.find(([size]) => Math.abs(largest) >= size) || [1, "B"]; }
function bytes(value) {
  if (!isNumber(value)) return kNone;
  const [size, name] = bytesUnit(value);
  return `${number(value / size, 4)} ${name}`;
}

function seconds(value) {
  if (!isNumber(value)) return kNone;
  if (value < 60) return `${number(value, 3)} s`;
  const whole = Math.round(value);
  const pad = (part) => String(part).padStart(2, "0");
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${pad(whole % 60)} s`;
  return `${count(Math.floor(whole / 3600))} h ${pad(Math.floor(whole % 3600 / 60))} min`;
}

// element("p", {class: "note"}, "text", another): properties are attributes, or listeners where they are functions.
function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") made.addEventListener(name, value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function mean(values) { return values.length === 0 ? NaN : values.reduce((sum, value) => sum + value, 0) / values.length; }

function quantile(sorted, fraction) {
  if (sorted.length === 0) return NaN;
  const at = fraction * (sorted.length - 1);
  const low = Math.floor(at);
  return sorted[low] + (at - low) * ((sorted[low + 1] ?? sorted[low]) - sorted[low]);
}
