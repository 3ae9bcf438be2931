/** Elements, tips and colours: what all views use. */

/** An element with attributes and children; texts are texts, whatever is in them. */
export function element(name, attributes = {}, ...children) {
  const one = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") one.className = value;
    else if (key.startsWith("on")) one.addEventListener(key.slice(2), value);
    else if (value === true) one.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) one.setAttribute(key, value);
  }
  one.append(...children.filter((child) => child !== null && child !== undefined));
  return one;
}

const tip = () => document.getElementById("tip");

/** Show a text beside the pointer. */
export function showTip(text, x, y) {
  const box = tip();
  box.textContent = text;
  box.hidden = false;
  const { width, height } = box.getBoundingClientRect();
  box.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 6))}px`;
  box.style.top = `${y + 18 + height > innerHeight ? Math.max(4, y - height - 12) : y + 18}px`;
}

export function hideTip() {
  tip().hidden = true;
}

/** Have a text shown where somebody points or taps, and not beside it: `tell` gets the event. */
export function tellAt(target, tell) {
  target.addEventListener("pointermove", tell);
  target.addEventListener("click", tell);
  target.addEventListener("pointerleave", hideTip);
}

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

export const series = (number) => colour(`series-${number % 9}`);

const SHADES = 64;

/** A list of colours from nothing to most, of the theme. */
export function heatShades() {
  const stops = [0, 1, 2, 3, 4].map((number) => channels(colour(`heat-${number}`)));
  return Array.from({ length: SHADES }, (_, shade) => {
    const at = (shade / (SHADES - 1)) * (stops.length - 1);
    const low = Math.min(stops.length - 2, Math.floor(at));
    const mixed = stops[low].map((value, i) => Math.round(value + (at - low) * (stops[low + 1][i] - value)));
    return `rgb(${mixed.join(",")})`;
  });
}

export function shadeOf(value, most) {
  if (!(value > 0) || !(most > 0)) return 0;
  return Math.max(1, Math.min(SHADES - 1, Math.round((value / most) * (SHADES - 1))));
}

function channels(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

/** A canvas that is as sharp as the screen; returns its context, in units of the page. */
export function fit(canvas, height) {
  const width = canvas.clientWidth;
  const sharp = devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * sharp), Math.round(height * sharp)];
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(sharp, 0, 0, sharp, 0, 0);
  return context;
}
