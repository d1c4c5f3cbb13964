// The page of the exchanges' quality: a table of the recorded hours, read over REST with the key of this tab.

import { fixed } from "./format.js";
import { Refused, Rest } from "./rest.js";

const KEY_SLOT = "onebook.key"; // as on the first page
const HOUR_MS = 3_600_000;
const STRIP_HOURS_MAX = 168; // more would be narrower than a pixel
const OUTAGES_SHOWN = 3;
const SVG = "http://www.w3.org/2000/svg";
const at = (id) => document.getElementById(id);
let key = null;
let rest = null;

/** The quality by exchange or by hour, from the start of the oldest hour on. */
async function quality(by, from, symbol) {
  return (await rest.get("/exchanges/quality", { by, from: String(from * 1000), symbols: symbol })).rows;
}

async function show() {
  const [hours, symbol] = [Number(at("hours").value), at("symbol").value.trim().toUpperCase()];
  const from = Math.floor(Date.now() / HOUR_MS - hours) * HOUR_MS;
  say("Waiting for the service.");
  let accepted = false; // the key
  try {
    await rest.open();
    accepted = true;
    const strips = hours <= STRIP_HOURS_MAX ? quality("hour", from, symbol) : [];
    const [exchanges, byHour] = await Promise.all([quality("exchange", from, symbol), strips]);
    draw(exchanges, byHour, from, hours);
    try { sessionStorage.setItem(KEY_SLOT, key); } catch { /* storage is off */ }
    say(exchanges.length ? "" : "No closed hour was recorded in this time.");
    enter(true);
  } catch (error) {
    say(error instanceof Refused ? error.message : "The service did not respond; try again.");
    if (!accepted) enter(false);
  }
}

function enter(inside) {
  at("key-form").hidden = inside;
  at("choice").hidden = !inside;
  if (!inside) at("report").hidden = true;
}

const say = (text) => (at("said").textContent = text);

/** Fill the table, the least available exchange first. */
function draw(exchanges, byHour, from, hours) {
  const strips = new Map(exchanges.map((row) => [row.exchange, []]));
  for (const row of byHour) strips.get(row.exchange)?.push(row);
  exchanges.sort((one, other) => (one.uptime ?? 2) - (other.uptime ?? 2) || one.exchange.localeCompare(other.exchange));
  at("rows").replaceChildren(...exchanges.map((row) => line(row, strips.get(row.exchange), from, hours)));
  at("report").hidden = !exchanges.length;
}

function line(row, strip, from, hours) {
  const found = document.createElement("tr");
  const name = found.appendChild(document.createElement("th"));
  [name.scope, name.textContent] = ["row", row.exchange];
  const cell = (title, text, kind = "number") => {
    const made = found.appendChild(document.createElement("td"));
    [made.className, made.dataset.name] = [kind, title];
    made.append(text);
    return made;
  };
  cell("Uptime", percent(row.uptime), "number uptime");
  cell("By hour", strip.length ? drawn(strip, from, hours) : "", "hours");
  for (const [title, count] of [["Gaps", row.gaps], ["Checksum misses", row.checksum_misses], ["Silences", row.silences], ["Refusals", row.refusals]])
    cell(title, fixed(count, 0), count ? "number some" : "number");
  cell("Age, ms", row.age_p50_ms === null ? "unknown" : `${fixed(row.age_p50_ms, 0)} / ${fixed(row.age_p99_ms, 0)}`);
  cell("Crossings", row.crossings ? `${fixed(row.crossings, 0)} in ${fixed(row.crossed_s, 0)} s` : "0");
  const outages = row.outages.slice(0, OUTAGES_SHOWN).map(({ reason, seconds }) => `${reason.replaceAll("_", " ")} ${span(seconds)}`);
  cell("Longest outages", outages.join(", ") || "none", "outages");
  return found;
}

/** A bar for each hour: its height is the uptime, and what is missing stands above it in the other colour. */
function drawn(strip, from, hours) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "strip");
  svg.setAttribute("viewBox", `0 0 ${hours} 1`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  const worst = strip.filter(({ uptime }) => uptime !== null).sort((one, other) => one.uptime - other.uptime)[0];
  if (worst) svg.setAttribute("aria-label", `Uptime of ${strip.length} hours; the worst was ${worst.hour.slice(0, 16).replace("T", " ")} UTC with ${percent(worst.uptime)}`);
  for (const { hour, uptime } of strip) {
    if (uptime === null) continue;
    const x = (Date.parse(hour) - from) / HOUR_MS;
    // An outage of a second is a thousandth of the height: it is drawn as a tenth, so that it can be seen.
    const down = uptime < 1 ? Math.max(0.1, 1 - uptime) : 0;
    bar(svg, "live", x, down, 1 - down);
    if (down) bar(svg, "down", x, 0, down);
  }
  return svg;
}

function bar(svg, kind, x, y, height) {
  const rect = svg.appendChild(document.createElementNS(SVG, "rect"));
  for (const [name, value] of Object.entries({ class: kind, x: x + 0.08, y, width: 0.84, height })) rect.setAttribute(name, value);
}

/** A share as percent that is never rounded up to 100. */
function percent(share) {
  if (share === null) return "unknown";
  return `${fixed(Math.floor(share * 1e5 + 1e-6) / 1e3, share < 1 ? 3 : 0)} %`;
}

/** Seconds in the largest unit that fits. */
function span(seconds) {
  const [size, unit] = seconds >= 5400 ? [3600, "h"] : seconds >= 90 ? [60, "min"] : [1, "s"];
  return `${fixed(seconds / size, 1)}\u00a0${unit}`; // on one line
}

at("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  key = at("key").value.trim();
  rest = new Rest(key);
  at("key").value = "";
  show();
});
at("choice").addEventListener("submit", (event) => (event.preventDefault(), show()));
at("hours").addEventListener("change", show);
try { key = sessionStorage.getItem(KEY_SLOT); } catch { /* storage is off */ }
rest = new Rest(key);
if (key) show();
else enter(false);
