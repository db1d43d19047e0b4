// @ts-check
/**
 * Colours of dots: neighbouring labels get neighbouring hues, so that the map is calm.
 *
 * In: a space, and the tokens of the style sheet. Out: red, green and blue from 0 to 1.
 */

/** @typedef {[number, number, number]} Rgb */

/**
 * A colour by lightness, chroma and hue as the eye sees them (OKLCH).
 * @param {number} l
 * @param {number} c
 * @param {number} hue in radians
 * @returns {Rgb}
 */
function oklch(l, c, hue) {
  const a = c * Math.cos(hue);
  const b = c * Math.sin(hue);
  const cones = [
    l + 0.3963377774 * a + 0.2158037573 * b,
    l - 0.1055613458 * a - 0.0638541728 * b,
    l - 0.0894841775 * a - 1.291485548 * b,
  ].map((v) => v ** 3);
  const linear = [
    4.0767416621 * cones[0] - 3.3077115913 * cones[1] + 0.2309699292 * cones[2],
    -1.2684380046 * cones[0] + 2.6097574011 * cones[1] - 0.3413193965 * cones[2],
    -0.0041960863 * cones[0] - 0.7034186147 * cones[1] + 1.707614701 * cones[2],
  ];
  return /** @type {Rgb} */ (
    linear.map((v) =>
      Math.min(1, Math.max(0, v <= 0.0031308 ? 12.92 * v : 1.055 * v ** (1 / 2.4) - 0.055)),
    )
  );
}

/** Whether the person prefers a dark ground. */
export function isDark() {
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

/** A colour token of the style sheet, such as `--point`. @param {string} name @returns {Rgb} */
export function token(name) {
  const hex = getComputedStyle(document.documentElement)
    .getPropertyValue(name)
    .trim()
    .replace("#", "");
  return /** @type {Rgb} */ ([0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16) / 255));
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

/**
 * One colour for each label: its hue says in which direction of the middle its points lie.
 * @param {import("./space.js").Space} space @returns {Rgb[]}
 */
export function labelColours(space) {
  const n = space.labels.length;
  const sums = new Float64Array(3 * n);
  for (let i = 0; i < space.n; i += 1) {
    const offset = 3 * space.label[i];
    sums[offset] += space.xy[2 * i];
    sums[offset + 1] += space.xy[2 * i + 1];
    sums[offset + 2] += 1;
  }
  const [x0, y0, x1, y1] = space.header.bounds;
  const dark = isDark();
  return Array.from({ length: n }, (_, i) => {
    const count = sums[3 * i + 2] || 1;
    const x = (2 * sums[3 * i]) / count - (x0 + x1);
    const y = (2 * sums[3 * i + 1]) / count - (y0 + y1);
    const eccentricity = Math.min(1, Math.hypot(x / (x1 - x0 || 1), y / (y1 - y0 || 1)) * 1.6);
    return oklch(dark ? 0.7 : 0.58, 0.03 + 0.07 * eccentricity, Math.atan2(y, x) + 3.4);
  });
}
