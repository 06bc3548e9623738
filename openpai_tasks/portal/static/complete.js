// Completion from a JSON Schema: where the cursor is in YAML or JSON, and what fits there.

// A place: the path to its mapping, the mapping's other keys, whether a key or a value is typed,
// what is typed so far and where that begins.

export function placeAt(text, at) {
  return /^\s*{/.test(text) ? placeInJson(text, at) : placeInYaml(text, at);
}

function child(above, key, more = {}) {
  return { path: [...above.path, key], above, keys: new Map(), ...more };
}

const unquoted = (word) => word.replace(/^(["'])(.*)\1$/, "$2");

function placeInYaml(text, at) {
  const row = text.slice(0, at).split("\n").length - 1;
  const start = text.lastIndexOf("\n", at - 1) + 1;
  const stack = [{ path: [], keys: new Map(), column: -1 }];
  const top = () => stack[stack.length - 1];
  let found = null;
  let block = -1; // column of a key whose value is a block of text
  for (const [number, whole] of text.split("\n").entries()) {
    const isHere = number === row;
    const line = isHere ? text.slice(start, at) : whole;
    let column = line.search(/\S|$/);
    let rest = line.slice(column);
    if (block >= 0 && (!rest || column > block)) {
      if (isHere && column > block) return null;
      continue;
    }
    block = -1;
    if (rest.startsWith("#") || (!rest && !isHere)) {
      if (isHere) return null;
      continue;
    }
    for (let dash; (dash = rest.match(/^-(\s+|$)/)); ) {
      while (top().column > column || (top().isItem && top().column === column)) stack.pop();
      stack.push(child(top(), "*", { column, isItem: true }));
      if (/^-\s+[|>][-+\d]*\s*$/.test(rest)) block = column;
      column += dash[0].length;
      rest = rest.slice(dash[0].length);
    }
    const pair = rest.match(/^("[^"]*"|'[^']*'|[^\s"'#{}[\],&*!|>%@`][^:#]*?)\s*:(?:(\s+)(.*))?$/);
    if (!pair && !isHere) continue;
    while (top().column >= column) stack.pop();
    if (!pair) {
      if (/^[\w.-]*$/.test(rest)) found = { ...place(top()), kind: "key", typed: rest, column };
    } else {
      const [, key, gap, value = ""] = pair;
      const name = unquoted(key);
      if (!isHere) top().keys.set(name, unquoted(value.replace(/\s+#.*$/, "")));
      else if (gap && /^["']?[\w.-]*$/.test(value)) {
        found = { ...place(top()), kind: "value", key: name, typed: value, column };
      }
      if (/^[|>][-+\d]*\s*(#.*)?$/.test(value)) block = column;
      stack.push(child(top(), name, { column }));
    }
  }
  return found && { ...found, start: at - found.typed.length, isJson: false };
}

const place = (mapping) => ({ path: mapping.path, keys: mapping.keys });

function placeInJson(text, at) {
  const stack = [{ path: [], keys: new Map() }];
  const top = () => stack[stack.length - 1];
  let found = null;
  const here = (start, typed, isQuoted) => {
    const holder = top();
    if (!holder.isMapping && !holder.isList) return;
    const kind = holder.isMapping && holder.key === undefined ? "key" : "value";
    found = { ...place(holder), kind, key: holder.key, typed, start, isQuoted, isJson: true };
  };
  for (const { 0: token, index } of text.matchAll(/"(?:[^"\\\n]|\\.)*"?|[{}[\],:]|[^\s{}[\],:"]+/g)) {
    const end = index + token.length;
    if (!found && at <= index) here(at, "", false);
    else if (!found && at <= end && /^["\w-]/.test(token)) {
      here(index, text.slice(index, at).replace(/^"/, ""), token.startsWith('"'));
    }
    if (token === "{") stack.push(child(top(), top().isList ? "*" : top().key ?? "", { isMapping: true }));
    else if (token === "[") stack.push(child(top(), top().key ?? "*", { isList: true }));
    else if (token === "}" || token === "]") stack.length > 1 && stack.pop();
    else if (token === ",") top().key = undefined;
    else if (token === ":") top().key = top().last;
    else if (top().isMapping && top().key === undefined) {
      top().last = unquoted(token);
      if (!(index <= at && at <= end)) top().keys.set(top().last, "");
    } else if (top().isMapping) top().keys.set(top().key, unquoted(token));
  }
  if (!found) return null;
  return { ...found, path: found.path.slice(1) }; // without the outermost mapping
}

// The parts of a schema that apply at a path; the values beside a key decide between variants.
function schemaAt(schema, place) {
  let parts = [schema];
  for (const key of place.path) parts = parts.flatMap((part) => within(part, key));
  return parts.flatMap((part) => [part, ...variants(part, place.keys)]);
}

function within(schema, key) {
  if (key === "*") return schema.items ? [schema.items] : [];
  const known = schema.properties?.[key] ?? Object.values(schema.patternProperties ?? {})[0];
  return known ? [known] : [];
}

function variants(schema, keys) {
  const fits = ({ if: when }) =>
    Object.entries(when?.properties ?? {}).every(([key, rule]) => String(rule.const) === keys.get(key));
  return (schema.allOf ?? []).filter(fits).map((one) => one.then);
}

// What can be typed at a place: {name, about, insert}.
export function suggestions(schema, place) {
  const parts = schemaAt(schema, place);
  const properties = Object.assign({}, ...parts.map((part) => part.properties ?? {}));
  if (place.kind === "value") return values(place.key ? properties[place.key] : parts[0], place);
  return Object.entries(properties)
    .filter(([name, rule]) => rule && !name.includes(".") && !place.keys.has(name) && fits(name, place))
    .map(([name, rule]) => ({ name, about: rule.description ?? "", insert: keyText(name, rule, place) }));
}

const fits = (name, place) => {
  const typed = unquoted(place.typed).replace(/^["']/, "").toLowerCase();
  return name.toLowerCase().startsWith(typed) && name.toLowerCase() !== typed;
};

function values(rule, place) {
  if (!rule) return [];
  const all = rule.enum ?? (rule.type === "boolean" ? [true, false] : rule.examples ?? []);
  const about = rule.enum ? "" : "example";
  return [...new Set(all.map(String))]
    .filter((name) => fits(name, place))
    .map((name) => ({ name, about, insert: place.isJson && isText(rule, all, name) ? `"${name}"` : name }));
}

const isText = (rule, all, name) => !all.some((value) => typeof value !== "string" && String(value) === name);

function keyText(name, rule, place) {
  const inside = (place.column ?? 0) + 2;
  if (place.isJson) return `"${name}": `;
  if (rule.type === "array") return `${name}:\n${" ".repeat(inside)}- `;
  return rule.type === "object" || rule.patternProperties ? `${name}:\n${" ".repeat(inside)}` : `${name}: `;
}
