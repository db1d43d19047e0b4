// @ts-check
/**
 * A box to find a label by typing: a combobox with completion from the service.
 *
 * In: what is typed. Out: `choose(label, Label | null)`, once for each choice; the second is null
 * for a word that is no label, which is offered only where `allowNew` says so.
 */

import { clear, debounce, h, uid } from "./dom.js";
import { isAbort } from "./api.js";
import { count, icon } from "./parts.js";

/**
 * @param {object} options
 * @param {import("./api.js").Api} options.api
 * @param {string} options.name accessible name of the box
 * @param {(label: string, found: any) => void} options.choose
 * @param {string} [options.placeholder]
 * @param {boolean} [options.allowNew]
 * @param {boolean} [options.keep] leave the chosen label standing in the box
 * @param {boolean} [options.search] the key "/" goes here
 * @param {() => void} [options.backspace] Backspace in the empty box
 * @param {Record<string, any>} [options.params] further parameters of the question, such as `kind`
 * @returns {{element: HTMLElement, input: HTMLInputElement, close: () => void, set: (label: string) => void}}
 */
export function labelBox({
  api,
  name,
  choose,
  placeholder = "",
  allowNew = false,
  keep = false,
  search = false,
  backspace,
  params = {},
}) {
  const id = uid("labels");
  /** @type {any[]} */
  let shown = [];
  let at = -1;
  let chosen = "";
  let stale = false; // the list is of something that was typed before
  let eager = false; // Enter was pressed meanwhile
  /** @type {AbortController | null} */
  let pending = null;
  const input = h("input", {
    type: "text",
    role: "combobox",
    aria_label: name,
    aria_autocomplete: "list",
    aria_expanded: "false",
    aria_controls: id,
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
    enterkeyhint: "search",
    placeholder,
  });
  if (search) input.dataset.search = "";
  const list = h("ul.combo-list", {
    role: "listbox",
    id,
    aria_label: `${name}: labels`,
    hidden: true,
  });
  const element = h("div.combo", input, list);

  const close = () => {
    ask.cancel();
    pending?.abort();
    shown = [];
    at = -1;
    stale = eager = false;
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };

  const take = (/** @type {any} */ one) => {
    close();
    chosen = one.label;
    input.value = keep ? one.label : "";
    choose(one.label, one.fresh ? null : one);
  };

  const mark = (/** @type {number} */ to) => {
    at = to;
    [...list.children].forEach((row, i) => row.setAttribute("aria-selected", String(i === at)));
    if (at < 0) input.removeAttribute("aria-activedescendant");
    else {
      input.setAttribute("aria-activedescendant", `${id}-${at}`);
      list.children[at].scrollIntoView({ block: "nearest" });
    }
  };

  const draw = (/** @type {any[]} */ found, /** @type {string} */ typed) => {
    const exact = found.some((one) => one.label.toLowerCase() === typed.toLowerCase());
    shown = allowNew && typed && !exact ? [...found, { label: typed, fresh: true }] : found;
    const rows = shown.map((one, i) =>
      h("li", {
          role: "option",
          id: `${id}-${i}`,
          aria_selected: "false",
          onmousedown: (/** @type {Event} */ event) => event.preventDefault(),
          onclick: () => take(one),
        },
        h("span", one.label),
        one.fresh
          ? h("span.muted", "not known yet")
          : [
              one.kind !== "seen" && h("span", { class: `kind kind-${one.kind}` }, one.kind),
              h("span.muted", count(one.count)),
            ],
      ),
    );
    clear(list,
      rows.length
        ? rows
        : h("li.combo-none", { role: "option", aria_disabled: "true", aria_selected: "false" },
            h("span", "No label like this."),
          ),
    );
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    mark(shown.length && typed ? 0 : -1);
    stale = false;
    if (eager && at >= 0) take(shown[at]);
    eager = false;
  };

  const ask = debounce(async () => {
    const typed = keep && input.value === chosen ? "" : input.value.trim();
    pending?.abort();
    pending = new AbortController();
    const { signal } = pending;
    try {
      const found = await api.get(api.model("labels"), {
        params: { query: typed, limit: 12, order: "count", ...params },
        signal,
      });
      if (!signal.aborted && document.activeElement === input) draw(found.labels, typed);
    } catch (error) {
      if (!isAbort(error)) close();
    }
  }, 110);

  input.addEventListener("input", () => {
    stale = true;
    eager = false;
    ask();
  });
  input.addEventListener("focus", () => keep && input.select());
  input.addEventListener("click", () => list.hidden && ask());
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    const n = shown.length;
    if (event.key === "ArrowDown" && list.hidden) ask();
    else if (event.key === "ArrowDown" && n) mark((at + 1) % n);
    else if (event.key === "ArrowUp" && n) mark((at - 1 + n) % n);
    else if (event.key === "Enter" && at >= 0 && !stale) take(shown[at]);
    else if (event.key === "Enter" && allowNew && input.value.trim())
      take({ label: input.value.trim(), fresh: true });
    else if (event.key === "Enter" && stale && input.value.trim()) eager = true;
    else if (event.key === "Escape" && !list.hidden) close();
    else if (event.key === "Backspace" && !input.value && backspace) backspace();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  const set = (/** @type {string} */ label) => {
    input.value = chosen = label;
  };
  return { element, input, close, set };
}

/** The box with a magnifying glass before it. @param {Parameters<typeof labelBox>[0]} options */
export function searchBox(options) {
  const box = labelBox({ keep: true, search: true, ...options });
  box.element.classList.add("combo-search");
  box.element.prepend(icon("search"));
  return box;
}
