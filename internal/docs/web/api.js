"use strict";

// Builds the page from openapi.json. Everything is set as text, never as HTML.

const make = (tag, attributes, ...children) => {
  const el = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    el.setAttribute(name, value);
  }
  el.append(...children);
  return el;
};

const table = (rows) => make("div", { class: "table", tabindex: "0" }, make("table", {}, make("tbody", {}, ...rows)));

const code = (text) => make("code", {}, text);

// description is where openapi.json is: the paths in it begin beside it.
const description = document.getElementById("spec").href;
const authorization = document.getElementById("authorization"); // there is none where nobody answers
let spec;

const resolve = (schema) => {
  while (schema && schema.$ref) {
    schema = schema.$ref.slice(2).split("/").reduce((at, step) => at[step], spec);
  }
  return schema || {};
};

const typeName = (schema) => {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.enum) return schema.enum.map((v) => JSON.stringify(v)).join(" | ");
  if (schema.oneOf) return schema.oneOf.map((s) => s.title || typeName(s)).join(" | ");
  const type = [].concat(schema.type || "any JSON").join(" | ");
  if (schema.type === "array" || (Array.isArray(schema.type) && schema.type.includes("array"))) {
    return "list of " + typeName(schema.items || {});
  }
  return schema.format ? type + " (" + schema.format + ")" : type;
};

const bounds = (schema) => {
  const names = { minLength: "at least # characters", maxLength: "at most # characters", minimum: "at least #", maximum: "at most #", minItems: "at least # items", maxItems: "at most # items", default: "default #", pattern: "matches #" };
  return Object.entries(names).filter(([name]) => schema[name] !== undefined).map(([name, text]) => text.replace("#", schema[name])).join(", ");
};

// example is a value that fits the schema.
const example = (schema, depth = 0) => {
  const known = schema.examples ? schema.examples[0] : schema.example;
  if (known !== undefined) return known;
  schema = resolve(schema);
  if (schema.examples) return schema.examples[0];
  if (schema.enum) return schema.enum[0];
  if (schema.oneOf) return example(schema.oneOf[0], depth + 1);
  const type = [].concat(schema.type || [])[0];
  switch (type) {
    case "object": {
      const value = {};
      for (const [name, member] of Object.entries(schema.properties || {})) {
        if (depth < 5) value[name] = example(member, depth + 1);
      }
      return value;
    }
    case "array": return depth < 5 ? [example(schema.items || {}, depth + 1)] : [];
    case "integer": case "number": return schema.minimum || 1;
    case "boolean": return false;
    case "string": return schema.format === "date-time" ? "2026-01-31T12:00:00Z" : "text";
  }
  return { any: "JSON" };
};

// requestExample has what a request needs, and what is usual.
const requestExample = (schema) => {
  schema = resolve(schema);
  const value = {};
  const usual = ["payload", "result", "error", "outcome", "begin"];
  for (const [name, member] of Object.entries(schema.properties || {})) {
    if ((schema.required || []).includes(name) || usual.includes(name)) value[name] = example(member);
  }
  return value;
};

const memberTable = (schema) => {
  const rows = Object.entries(schema.properties || {}).map(([name, member]) => {
    const target = member.$ref ? make("a", { href: "#schema-" + typeName(member) }, typeName(member)) : typeName(member);
    const required = (schema.required || []).includes(name) ? "required" : "";
    return make("tr", {}, make("td", {}, code(name)), make("td", {}, target), make("td", {}, required), make("td", {}, [member.description, bounds(member)].filter(Boolean).join(" – ")));
  });
  return table(rows);
};

const content = (body) => {
  const found = Object.entries((body && body.content) || {})[0];
  return found ? { media: found[0], schema: found[1].schema || {} } : null;
};

const tryForm = (method, path, op) => {
  const form = make("form", {}, make("h3", {}, "Try it"));
  const inputs = [];
  for (const p of op.parameters || []) {
    const input = make("input", { name: p.name, autocomplete: "off", spellcheck: "false" });
    if (p.in === "path" && (p.example || (p.schema && p.schema.examples))) input.value = p.example || p.schema.examples[0];
    inputs.push({ p, input });
    form.append(make("label", {}, p.name + " (" + p.in + ") ", input));
  }
  const body = content(op.requestBody);
  let text;
  if (body) {
    text = make("textarea", { name: "body", spellcheck: "false" });
    text.value = JSON.stringify(requestExample(body.schema), null, 2);
    form.append(make("label", {}, "body ", text));
  }
  const send = make("button", { type: "submit" }, "Send");
  const output = make("pre", { "aria-live": "polite", tabindex: "0" });
  output.hidden = true;
  form.append(send, output);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    output.hidden = false;
    output.textContent = "…";
    let target = path;
    const query = new URLSearchParams();
    const headers = { Accept: "application/json, application/problem+json, text/event-stream" };
    if (authorization.value) headers.Authorization = authorization.value;
    for (const { p, input } of inputs) {
      if (p.in === "path") target = target.replace("{" + p.name + "}", encodeURIComponent(input.value));
      else if (input.value !== "" && p.in === "query") query.set(p.name, input.value);
      else if (input.value !== "" && p.in === "header") headers[p.name] = input.value;
    }
    if (text) headers["Content-Type"] = "application/json";
    try {
      const answer = await fetch(new URL("." + target, description) + (query.size ? "?" + query : ""), { method: method.toUpperCase(), headers, body: text ? text.value : undefined });
      output.textContent = answer.status + " " + answer.statusText + "\n";
      for (const name of ["Location", "Retry-After", "Idempotency-Replayed", "Preference-Applied"]) {
        if (answer.headers.get(name)) output.textContent += name + ": " + answer.headers.get(name) + "\n";
      }
      output.textContent += "\n";
      if ((answer.headers.get("Content-Type") || "").startsWith("text/event-stream")) {
        const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        for (;;) {
          const { done, value } = await reader.read();
          if (done) break;
          output.textContent = (output.textContent + value).slice(-20000);
        }
        return;
      }
      const received = await answer.text();
      try {
        output.textContent += JSON.stringify(JSON.parse(received), null, 2);
      } catch {
        output.textContent += received;
      }
    } catch (problem) {
      output.textContent = String(problem);
    }
  });
  return form;
};

const endpoint = (method, path, op) => {
  const el = make("article", { id: op.operationId }, make("h2", {}, code(method.toUpperCase() + " " + path)), make("p", {}, make("strong", {}, op.summary || "")));
  for (const part of (op.description || "").split("\n\n").filter((s) => s.trim())) {
    el.append(part.includes("\n") ? make("pre", { tabindex: "0" }, part) : make("p", {}, part));
  }
  if ((op.parameters || []).length) {
    const rows = op.parameters.map((p) => make("tr", {}, make("td", {}, code(p.name)), make("td", {}, p.in), make("td", {}, typeName(p.schema || {})), make("td", {}, p.required ? "required" : ""), make("td", {}, [p.description, bounds(p.schema || {})].filter(Boolean).join(" – "))));
    el.append(make("h3", {}, "Parameters"), table(rows));
  }
  const body = content(op.requestBody);
  if (body) {
    el.append(make("h3", {}, "Body"), memberTable(resolve(body.schema)), make("pre", { tabindex: "0" }, JSON.stringify(requestExample(body.schema), null, 2)));
  }
  el.append(make("h3", {}, "Answers"));
  for (const [status, answer] of Object.entries(op.responses || {})) {
    const found = content(answer);
    const line = make("p", {}, code(status), " ", answer.description || "");
    if (found && found.schema.$ref) line.append(" – ", make("a", { href: "#schema-" + typeName(found.schema) }, typeName(found.schema)));
    el.append(line);
    if (found && status.startsWith("2")) {
      el.append(make("details", {}, make("summary", {}, "Example"), make("pre", { tabindex: "0" }, JSON.stringify(example(found.schema), null, 2))));
    }
  }
  if (authorization) el.append(tryForm(method, path, op));
  return el;
};

const build = async () => {
  const main = document.getElementById("endpoints");
  try {
    spec = await (await fetch(description)).json();
  } catch (problem) {
    main.append(make("p", {}, "openapi.json could not be read: " + problem));
    return;
  }
  document.getElementById("about").textContent = spec.info.description;
  const list = make("ul", {});
  document.getElementById("contents").append(list);
  for (const [path, methods] of Object.entries(spec.paths)) {
    for (const [method, op] of Object.entries(methods)) {
      list.append(make("li", {}, make("a", { href: "#" + op.operationId }, make("span", { class: "method" }, method.toUpperCase()), code(path)), " " + (op.summary || "")));
      main.append(endpoint(method, path, op));
    }
  }
  main.append(make("h2", {}, "Schemas"));
  for (const [name, schema] of Object.entries(spec.components.schemas)) {
    main.append(make("article", { id: "schema-" + name }, make("h3", {}, code(name)), memberTable(schema)));
  }
  if (location.hash) location.assign(location.hash);
};

build();
