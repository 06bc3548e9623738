// Change the children of an element into new HTML, touching only what differs: focus, selection,
// ticked boxes, open details and scroll positions stay as they are.

export function morph(target, html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  morphChildren(target, template.content);
}

function morphChildren(from, to) {
  const keyed = new Map();
  for (const child of from.children) if (child.dataset.key) keyed.set(child.dataset.key, child);
  const kept = new Set([...to.children].map((child) => child.dataset.key));
  let here = from.firstChild;
  for (const wanted of [...to.childNodes]) {
    const key = wanted.nodeType === 1 ? wanted.dataset.key : undefined;
    while (wanted.nodeType === 1 && here && here.nodeType !== 1) here = removed(here); // space, mostly
    let match = key ? keyed.get(key) : here;
    if (!key && here?.nodeType === 1 && here.dataset.key) match = null;
    if (match && isSameKind(match, wanted)) {
      // What is before it goes: an element that is moved would lose the focus.
      while (key && here && here !== match && !isKept(here, kept)) here = removed(here);
      if (match === here) here = here.nextSibling;
      else from.insertBefore(match, here);
      morphNode(match, wanted);
    } else {
      from.insertBefore(wanted, here);
    }
  }
  while (here) here = removed(here);
}

function removed(node) {
  const next = node.nextSibling;
  node.remove();
  return next;
}

function isKept(node, keys) {
  return node.nodeType === 1 && node.dataset.key && keys.has(node.dataset.key);
}

function isSameKind(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName;
}

function morphNode(node, wanted) {
  if (node.isEqualNode(wanted)) return;
  if (node.nodeType !== 1) {
    node.nodeValue = wanted.nodeValue;
    return;
  }
  for (const { name } of [...node.attributes]) {
    const isOpened = name === "open" && node.nodeName === "DETAILS";
    if (!wanted.hasAttribute(name) && !isOpened) node.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (node.getAttribute(name) !== value) node.setAttribute(name, value);
  }
  if (!node.hasAttribute("data-drawn")) morphChildren(node, wanted); // its script draws it
}
