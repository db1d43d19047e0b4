// @ts-check
/**
 * Elements without a library.
 *
 * In: tag names, properties, children. Out: elements. Styles go through the CSSOM, since the
 * studio's content security policy forbids style attributes.
 */

/** @typedef {any} Child a node, text, a number, a list; null, undefined and false are nothing */
/** @typedef {Record<string, any>} Props */

const SVG = "http://www.w3.org/2000/svg";

/**
 * Return an HTML element: `h("button.quiet", { onclick: close, aria_label: "Close" }, "×")`.
 *
 * Classes follow the tag after dots; properties may be left out. `style` takes an object of CSS
 * properties, `dataset` an object, `on…` a listener; an underscore in a name stands for a hyphen;
 * `null`, `undefined` and `false` leave the attribute out. A button submits no form unless its
 * `type` says so.
 * @param {string} selector
 * @param {...any} content properties, if any, and children
 * @returns {any}
 */
export function h(selector, ...content) {
  const [tag, ...classes] = selector.split(".");
  const element = document.createElement(tag);
  if (element instanceof HTMLButtonElement) element.type = "button";
  return furnish(element, classes, content);
}

/**
 * Return an SVG element, with the same conventions as `h`.
 * @param {string} selector
 * @param {...any} content
 * @returns {any}
 */
export function s(selector, ...content) {
  const [tag, ...classes] = selector.split(".");
  return furnish(document.createElementNS(SVG, tag), classes, content);
}

/**
 * Give an element its classes, properties and children.
 * @param {Element} element
 * @param {string[]} classes
 * @param {any[]} content
 */
function furnish(element, classes, content) {
  const [first, ...rest] = content;
  const hasProps = isProps(first);
  if (classes.length) element.classList.add(...classes);
  if (hasProps) setProps(element, first);
  add(element, ...(hasProps ? rest : content));
  return element;
}

/** @param {any} value */
function isProps(value) {
  if (value === null || typeof value !== "object") return false;
  return !Array.isArray(value) && !(value instanceof Node);
}

/**
 * Set properties, attributes and listeners; see `h`.
 * @param {any} element
 * @param {Props} props
 */
function setProps(element, props) {
  for (const [key, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on") && typeof value === "function") {
      element.addEventListener(key.slice(2), value);
    } else if (key === "class") {
      element.classList.add(...value.split(" ").filter(Boolean));
    } else if (key === "style") {
      for (const [name, css] of Object.entries(value)) element.style.setProperty(name, String(css));
    } else if (key === "dataset") {
      Object.assign(element.dataset, value);
    } else if (key === "value" || key === "checked" || key === "selected") {
      element[key] = value;
    } else {
      element.setAttribute(key.replaceAll("_", "-"), value === true ? "" : String(value));
    }
  }
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
