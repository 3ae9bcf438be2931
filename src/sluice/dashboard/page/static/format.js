/** Numbers for people, as the terminal writes them: three digits and a unit. */

const ROWS = [[1, ""], [1e3, "k"], [1e6, "M"], [1e9, "G"], [1e12, "T"]];
const BYTES = [[1, "B"], [2 ** 10, "KiB"], [2 ** 20, "MiB"], [2 ** 30, "GiB"], [2 ** 40, "TiB"], [2 ** 50, "PiB"]];
const SECONDS = [[1e-6, "µs"], [1e-3, "ms"], [1, "s"], [60, "min"], [3600, "h"], [86400, "d"]];

const unitOf = (size, units) => units.filter(([least]) => least <= size).pop() ?? units[0];

function short(value, units) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!value) return units === SECONDS ? "0 s" : `0 ${units[0][1]}`.trim();
  const size = Math.abs(value);
  const [near] = unitOf(size, units); // 999.9 is written as the next unit's 1, and so are 1,023.9 MiB
  const [factor, name] = unitOf(Math.max(size, Number(size.toPrecision(3)), near * Math.round(size / near)), units);
  const number = value / factor;
  const digits = Math.abs(number) >= 100 ? Math.round(number).toLocaleString("en") : String(Number(number.toPrecision(3)));
  return `${digits} ${name}`.trim();
}

export const rows = (value) => short(value, ROWS);
export const bytes = (value) => short(value, BYTES);
export const seconds = (value) => short(value, SECONDS);
export const ratio = (value) => (value === null || value === undefined ? "–" : Number(value.toPrecision(3)).toString());
export const share = (value) => `${Math.round(100 * value)} %`;
export const count = (value) => value.toLocaleString("en");
export const rate = (value) => `${rows(value)}/s`;

export function ago(then, now) {
  const passed = Math.max(0, now - then);
  for (const [size, unit] of [[86400, "days"], [3600, "h"], [60, "min"]]) {
    if (passed >= 2 * size) return `${Math.round(passed / size)} ${unit} ago`;
  }
  return `${Math.round(passed)} s ago`;
}

export const clock = (time) => new Date(1000 * time).toLocaleTimeString();
