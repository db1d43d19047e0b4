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
  let options = [];
  let activeIndex = -1;
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
    options = [];
    activeIndex = -1;
    stale = eager = false;
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };

  const select = (/** @type {any} */ option) => {
    close();
    chosen = option.label;
    input.value = keep ? option.label : "";
    choose(option.label, option.fresh ? null : option);
  };

  const setActive = (/** @type {number} */ index) => {
    activeIndex = index;
    [...list.children].forEach((row, i) =>
      row.setAttribute("aria-selected", String(i === activeIndex)),
    );
    if (activeIndex < 0) input.removeAttribute("aria-activedescendant");
    else {
      input.setAttribute("aria-activedescendant", `${id}-${activeIndex}`);
      list.children[activeIndex].scrollIntoView({ block: "nearest" });
    }
  };

  const draw = (/** @type {any[]} */ labels, /** @type {string} */ typed) => {
    const exact = labels.some((label) => label.label.toLowerCase() === typed.toLowerCase());
    options = allowNew && typed && !exact ? [...labels, { label: typed, fresh: true }] : labels;
    const rows = options.map((option, i) =>
      h("li", {
          role: "option",
          id: `${id}-${i}`,
          aria_selected: "false",
          onmousedown: (/** @type {Event} */ event) => event.preventDefault(),
          onclick: () => select(option),
        },
        h("span", option.label),
        option.fresh
          ? h("span.muted", "not known yet")
          : [
              option.kind !== "seen" &&
                h("span", { class: `kind kind-${option.kind}` }, option.kind),
              h("span.muted", count(option.count)),
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
    setActive(options.length && typed ? 0 : -1);
    stale = false;
    if (eager && activeIndex >= 0) select(options[activeIndex]);
    eager = false;
  };

  const ask = debounce(async () => {
    const typed = keep && input.value === chosen ? "" : input.value.trim();
    pending?.abort();
    pending = new AbortController();
    const { signal } = pending;
    try {
      const answer = await api.get(api.model("labels"), {
        params: { query: typed, limit: 12, order: "count", ...params },
        signal,
      });
      if (!signal.aborted && document.activeElement === input) draw(answer.labels, typed);
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
    const n = options.length;
    if (event.key === "ArrowDown" && list.hidden) ask();
    else if (event.key === "ArrowDown" && n) setActive((activeIndex + 1) % n);
    else if (event.key === "ArrowUp" && n) setActive((activeIndex - 1 + n) % n);
    else if (event.key === "Enter" && activeIndex >= 0 && !stale) select(options[activeIndex]);
    else if (event.key === "Enter" && allowNew && input.value.trim())
      select({ label: input.value.trim(), fresh: true });
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
