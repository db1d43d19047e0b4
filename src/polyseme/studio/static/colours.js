// @ts-check
/**
 * Colours of dots: neighbouring labels get neighbouring hues, so that the map is calm.
 *
 * In: a space, and the tokens of the style sheet. Out: red, green and blue from 0 to 1.
 */

/** @typedef {[number, number, number]} Rgb */

/**
 * Return a colour by lightness, chroma and hue as the eye sees them (OKLCH, by Ottosson 2020, whose
 * numbers these are).
 * @param {number} lightness from 0 to 1
 * @param {number} chroma from 0, which is grey, to about 0.3
 * @param {number} hue in radians
 * @returns {Rgb}
 */
function oklch(lightness, chroma, hue) {
  const a = chroma * Math.cos(hue);
  const b = chroma * Math.sin(hue);
  const roots = [
    lightness + 0.3963377774 * a + 0.2158037573 * b,
    lightness - 0.1055613458 * a - 0.0638541728 * b,
    lightness - 0.0894841775 * a - 1.291485548 * b,
  ];
  const [long, medium, short] = roots.map((root) => root ** 3); // what the eye's cones see
  const linear = [
    4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
    -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
    -0.0041960863 * long - 0.7034186147 * medium + 1.707614701 * short,
  ];
  return /** @type {Rgb} */ (linear.map(gammaCorrected));
}

/** Return a linear share of light as sRGB has it, from 0 to 1. @param {number} light */
function gammaCorrected(light) {
  const level = light <= 0.0031308 ? 12.92 * light : 1.055 * light ** (1 / 2.4) - 0.055;
  return Math.min(1, Math.max(0, level));
}

/** Whether the person prefers a dark ground. */
export function isDark() {
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

/**
 * Return a colour token of the style sheet, such as `--point`; they are six hexadecimal digits.
 * @param {string} name
 * @returns {Rgb}
 */
export function token(name) {
  const style = getComputedStyle(document.documentElement);
  const digits = style.getPropertyValue(name).trim().replace("#", "");
  const levels = [0, 2, 4].map((start) => parseInt(digits.slice(start, start + 2), 16));
  return /** @type {Rgb} */ (levels.map((level) => level / 255));
}

/** Names of the tokens for senses, in order; further senses begin again. */
export const SENSES = [
  "--sense-1",
  "--sense-2",
  "--sense-3",
  "--sense-4",
  "--sense-5",
  "--sense-6",
];

/** Where on the circle of colours the labels on the right begin, in radians: found by eye. */
const FIRST_HUE = 3.4;

/**
 * Return a colour for each label, in their order. Its hue says in which direction from the middle
 * of the map the label's points lie on average, its chroma how far.
 * @param {import("./space.js").Space} space
 * @returns {Rgb[]}
 */
export function labelColours(space) {
  const nLabels = space.labels.length;
  const sumsX = new Float64Array(nLabels);
  const sumsY = new Float64Array(nLabels);
  const counts = new Uint32Array(nLabels);
  for (let i = 0; i < space.n; i += 1) {
    const label = space.label[i];
    sumsX[label] += space.xy[2 * i];
    sumsY[label] += space.xy[2 * i + 1];
    counts[label] += 1;
  }
  const [x0, y0, x1, y1] = space.header.bounds;
  const lightness = isDark() ? 0.7 : 0.58;
  return space.labels.map((_, label) => {
    const count = counts[label] || 1;
    const x = (2 * sumsX[label]) / count - (x0 + x1); // twice the distance from the middle
    const y = (2 * sumsY[label]) / count - (y0 + y1);
    const distance = Math.hypot(x / (x1 - x0 || 1), y / (y1 - y0 || 1)); // 1 at an edge
    const eccentricity = Math.min(1, 1.6 * distance);
    return oklch(lightness, 0.03 + 0.07 * eccentricity, Math.atan2(y, x) + FIRST_HUE);
  });
}
