// Shows what openapi.json says.

function element(name, text, ...children) {
  const made = document.createElement(name);
  made.append(text, ...children);
  return made;
}

function kind(schema) {
  if (schema.anyOf) return schema.anyOf.map(kind).filter((each) => each !== "null").join(" or ");
  if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(" or ");
  if (schema.type === "array") return `list of ${kind(schema.items ?? {})}`;
  return schema.type ?? "";
}

function parameters(schema) {
  const table = element("table", "");
  for (const [name, own] of Object.entries(schema.properties)) {
    const needed = schema.required?.includes(name);
    const value = needed ? "needed" : own.default === undefined || own.default === null ? "" : JSON.stringify(own.default);
    const cells = [element("code", name), kind(own), value, own.description ?? ""];
    table.append(element("tr", "", ...cells.map((cell) => element("td", cell))));
  }
  return table;
}

const { paths } = await (await fetch("/openapi.json")).json();
for (const [path, methods] of Object.entries(paths)) {
  for (const [method, operation] of Object.entries(methods)) {
    const section = element("section", element("h2", element("code", `${method.toUpperCase()} ${path}`)));
    section.append(element("p", operation.description ?? ""));
    const schema = operation.requestBody?.content["application/json"].schema;
    if (schema) section.append(parameters(schema));
    document.getElementById("paths").append(section);
  }
}
