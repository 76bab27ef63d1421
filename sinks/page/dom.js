// Creating and updating elements. Nothing here parses HTML, so external text stays text.

const SVG = "http://www.w3.org/2000/svg";

/** Creates an element with attributes, children (nodes or text) and `on…` listeners. Null children are left out. */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Creates an SVG element in the same way. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** Sets text only if it differs, so that unchanged text keeps its selection and is not announced again. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Sets an attribute, or removes it if the value is null; only if it differs. */
export function setAttribute(node, name, value) {
  if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

/** Replaces a node's children only if `signature`, a text that identifies them, changed. */
export function setChildren(node, signature, make) {
  if (node.dataset.signature === signature) return;
  node.dataset.signature = signature;
  node.replaceChildren(...[make()].flat().filter((child) => child !== null && child !== undefined));
}

/**
 * Gives `parent` one child per item, in order. Nodes of existing items are kept, with their focus, selection and opened
 * details. `make(item)` creates a node, `update(node, item)` fills it.
 */
export function sync(parent, items, keyOf, make, update) {
  const focused = document.activeElement;
  const before = new Map([...parent.children].map((node) => [node.dataset.key, node]));
  let next = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let node = before.get(key);
    if (node === undefined) {
      node = make(item);
      node.dataset.key = key;
    }
    before.delete(key);
    update(node, item);
    if (node === next) next = next.nextElementSibling;
    else parent.insertBefore(node, next);
  }
  for (const node of before.values()) {
    if (next === node) next = next.nextElementSibling;
    node.remove();
  }
  // Moving a node removes its focus.
  if (focused !== document.activeElement && focused?.isConnected && parent.contains(focused)) {
    focused.focus({ preventScroll: true });
  }
}

const UNSEEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;

/** Text from outside in which characters that are invisible, or reverse what follows, are escapes such as `\u202e`. */
export function visible(text) {
  return String(text).replace(UNSEEN, (character) => {
    const code = character.codePointAt(0).toString(16).padStart(4, "0");
    return code.length > 4 ? `\\u{${code}}` : `\\u${code}`;
  });
}

/** Shows an external name: its text direction does not affect the text around it, and long names wrap anywhere. */
export function name(text, extra = "") {
  return el("bdi", { class: `name ${extra}`.trim() }, text && visible(text));
}
