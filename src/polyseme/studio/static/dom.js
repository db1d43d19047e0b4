// @ts-check
/**
 * Elements without a library.
 *
 * In: tag names, properties, children. Out: elements. Styles go through the CSSOM, since the
 * studio's content security policy forbids style attributes.
 */

/** @typedef {any} Child a node, text, a number, a list of these; nothing for null, undefined and false */
/** @typedef {Record<string, any>} Props */

const SVG = "http://www.w3.org/2000/svg";

/**
 * An HTML element: `h("button", {class: "quiet", onclick: go, aria_label: "Close"}, "×")`.
 *
 * `style` takes an object of CSS properties, `dataset` an object, `on…` a listener; an underscore
 * in a name stands for a hyphen; `null`, `undefined` and `false` leave the attribute out.
 * @param {string} tag
 * @param {Props | null} [props]
 * @param {...Child} children
 * @returns {any}
 */
export function h(tag, props, ...children) {
  return furnish(document.createElement(tag), props, children);
}

/**
 * An SVG element, with the same conventions as `h`.
 * @param {string} tag
 * @param {Props | null} [props]
 * @param {...Child} children
 * @returns {any}
 */
export function s(tag, props, ...children) {
  return furnish(document.createElementNS(SVG, tag), props, children);
}

/**
 * @param {any} element
 * @param {Props | null | undefined} props
 * @param {Child[]} children
 */
function furnish(element, props, children) {
  for (const [key, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on") && typeof value === "function") {
      element.addEventListener(key.slice(2), value);
    } else if (key === "style") {
      for (const [name, to] of Object.entries(value)) element.style.setProperty(name, String(to));
    } else if (key === "dataset") {
      Object.assign(element.dataset, value);
    } else if (key === "value" || key === "checked" || key === "selected") {
      element[key] = value;
    } else {
      element.setAttribute(key.replaceAll("_", "-"), value === true ? "" : String(value));
    }
  }
  add(element, ...children);
  return element;
}

/**
 * Append children; arrays are flattened, nothing is left out but `null`, `undefined` and `false`.
 * @param {Node} parent
 * @param {...Child} children
 */
export function add(parent, ...children) {
  for (const child of children) {
    if (Array.isArray(child)) add(parent, ...child);
    else if (child instanceof Node) parent.appendChild(child);
    else if (child !== null && child !== undefined && child !== false) {
      parent.appendChild(document.createTextNode(String(child)));
    }
  }
}

/**
 * The first element that matches, or null.
 * @param {string} selector
 * @param {ParentNode} [within]
 * @returns {any}
 */
export function $(selector, within = document) {
  return within.querySelector(selector);
}

/**
 * Empty an element, and fill it with the children given.
 * @template {Node} T
 * @param {T} element
 * @param {...Child} children
 * @returns {T}
 */
export function clear(element, ...children) {
  while (element.firstChild) element.removeChild(element.firstChild);
  add(element, ...children);
  return element;
}

/**
 * A function that runs once, `wait` milliseconds after it was last called; `.cancel()` forgets it.
 * @template {any[]} A
 * @param {(...args: A) => void} run
 * @param {number} [wait]
 * @returns {((...args: A) => void) & {cancel: () => void}}
 */
export function debounce(run, wait = 150) {
  /** @type {number | undefined} */
  let timer;
  const later = (/** @type {A} */ ...args) => {
    clearTimeout(timer);
    timer = window.setTimeout(() => run(...args), wait);
  };
  later.cancel = () => clearTimeout(timer);
  return later;
}

let counted = 0;

/**
 * An id that no other element has.
 * @param {string} [prefix]
 */
export function uid(prefix = "n") {
  counted += 1;
  return `${prefix}-${counted}`;
}
