// The partition graph: boxes by dagre, why an arrow was cut, runs and kernels that open.
"use strict";
{
  const place = document.getElementById("partition");
  const detail = document.getElementById("partition-detail");
  const hint = detail.firstElementChild;
  const { brief, colour, element, press } = fuseplan;
  let graph = null;
  let view = null;
  let opened = new URLSearchParams(location.search).get("expand") ?? "";

  const link = (text, href) => {
    const made = element("a", text);
    made.href = href;
    return made;
  };
  const pairs = (facts) => {
    const list = element("dl", undefined, "pairs");
    for (const [name, value] of facts) list.append(element("dt", name), element("dd", value));
    return list;
  };

  const page = (rest, query) => {
    if (place.dataset.job) query.set("job", place.dataset.job);
    const text = query.toString();
    return place.dataset.source.replace(/partition$/, rest) + (text ? `?${text}` : "");
  };
  const kernelPage = (name) => page(`kernels/${name}`, new URLSearchParams());
  const whyPage = (a, b, part) => page("explain", new URLSearchParams(part ? { a, b, part: "1" } : { a, b }));
  const address = () => page("partition", new URLSearchParams(opened ? { expand: opened } : {}));

  // What is looked at stands in the address, so that a link shows the same.
  const keep = (name, value, other) => {
    const query = new URLSearchParams(location.search);
    if (value) query.set(name, value);
    else query.delete(name);
    if (name === "expand") query.delete("edge");
    if (name === "expand" || other) query.delete(other ?? "box");
    history.replaceState(null, "", `${location.pathname}${query.size ? `?${query}` : ""}${location.hash}`);
  };

  const style = () => [
    {
      selector: "node",
      style: {
        shape: "round-rectangle", width: 200, height: 46,
        "background-color": colour("raised"),
        "border-width": 1.5, "border-color": (n) => colour(n.data("family")) || colour("library"),
        label: (n) => `${n.data("label")}   ${n.data("time")}\n${n.data("short")}`,
        "text-wrap": "wrap", "text-max-width": 188, "text-valign": "center", "text-halign": "center",
        "font-size": 11, "line-height": 1.3, color: colour("ink"),
        "font-family": getComputedStyle(document.body).fontFamily,
      },
    },
    { selector: "node[?run]", style: { "border-style": "double", "border-width": 4 } },
    {
      selector: "node[?inner]",
      style: {
        width: 108, height: 26, "border-width": 1, "border-color": colour("line-strong"), "background-color": colour("ground"),
        label: (n) => n.data("label"), "font-size": 10, "text-max-width": 100,
      },
    },
    {
      selector: ":parent",
      style: {
        "background-color": colour("tint"), "background-opacity": 0.7, "border-width": 1.5, padding: 14,
        "text-valign": "top", "text-halign": "center", "text-margin-y": -4, label: (n) => `${n.data("label")}   ${n.data("time")}`,
      },
    },
    { selector: "node:selected", style: { "background-color": colour("tint"), "border-width": 3 } },
    {
      selector: "edge",
      style: {
        width: 1.2, "line-color": colour("line-strong"), "target-arrow-color": colour("line-strong"),
        "target-arrow-shape": "triangle", "arrow-scale": 0.8, "curve-style": "bezier",
        label: (e) => (e.data("saves") ? `${e.data("label")}\n${e.data("saves")}` : e.data("label") ?? ""), "text-wrap": "wrap", "font-size": 9, color: colour("soft"),
        "text-background-color": colour("raised"), "text-background-opacity": 1, "text-background-padding": 2,
        "min-zoomed-font-size": 7,
      },
    },
    // What was cut goes through memory: a broken line. What was kept stays in registers.
    { selector: "edge[?cut]", style: { "line-style": "dashed", "line-dash-pattern": [6, 3], "line-color": colour("faint"), "target-arrow-color": colour("faint"), width: (e) => 1.2 + 2.2 * Math.sqrt(e.data("part")) } },
    { selector: "edge[?kept]", style: { "line-color": colour("good"), "target-arrow-color": colour("good"), width: 1.4, label: "" } },
    { selector: "edge.near", style: { "line-color": colour("accent"), "target-arrow-color": colour("accent") } },
    { selector: "edge:selected", style: { "line-color": colour("accent"), "target-arrow-color": colour("accent"), width: 3.5, color: colour("ink") } },
  ];

  const clear = () => {
    graph.elements().unselect();
    graph.edges().removeClass("near");
  };

  const describe = (node) => {
    const data = node.data();
    if (data.inner) {
      detail.replaceChildren(element("h3", data.label), element("p", data.detail, "muted"),
        element("p", "A node inside the opened kernel. Choose a green arrow to see what keeping it saves."));
      return;
    }
    const facts = [["Family", data.family], ["Time", `${data.time} ${data.measured ? "measured" : "predicted"}`]];
    if (data.ops) facts.push(["Operators", data.ops]);
    detail.replaceChildren(element("h3", data.label), element("p", data.detail, "muted"), pairs(facts));
    const cuts = node.union(node.children()).connectedEdges("[?cut]").toArray().slice(0, 12);
    if (cuts.length) {
      const list = element("ul", undefined, "cuts");
      for (const edge of cuts) {
        const isIn = edge.target().id() === node.id() || edge.target().data("parent") === node.id();
        const item = element("li");
        item.append(press(`${isIn ? `from ${edge.data("from")}` : `to ${edge.data("to")}`}, ${edge.data("label")}${edge.data("saves") ? `, ${edge.data("saves")}` : ""}: why not fused?`, () => chooseEdge(edge), "quiet"));
        list.append(item);
      }
      detail.append(element("h4", "Cuts around it"), list);
    }
    const actions = element("p", undefined, "actions");
    const isOpen = opened === data.id;
    actions.append(press(isOpen ? "Close it" : data.run ? `Open ${data.kernels} kernels` : "Show its nodes", () => open(isOpen ? "" : data.id)));
    if (!data.run) actions.append(link("Kernel page", kernelPage(data.label)));
    if (!data.run && document.getElementById(data.label)) actions.append(link("Row in the table", `#${data.label}`));
    detail.append(actions);
  };

  const choose = (node) => {
    clear();
    node.select();
    node.connectedEdges().addClass("near");
    describe(node);
    keep("box", node.id(), "edge");
  };

  // The explanation is a fragment of our own page: the server escaped everything in it.
  const why = async (part, cut) => {
    part.replaceChildren(element("p", "Asking …", "muted"));
    const answer = await fetch(whyPage(cut.a, cut.b, true));
    if (!answer.ok) {
      part.replaceChildren(element("p", `There is no answer (HTTP ${answer.status}).`, "muted"));
      return;
    }
    const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
    part.replaceChildren(...parsed.body.childNodes, link("As a page", whyPage(cut.a, cut.b, false)));
    document.dispatchEvent(new CustomEvent("fuseplan:part"));
  };

  const chooseEdge = (edge) => {
    clear();
    edge.select();
    const cuts = edge.data("cuts");
    const [first] = cuts;
    const said = edge.data("cut")
      ? `${edge.data("label")} from ${first.from} to ${first.to}: written to memory, and read again.`
      : `${edge.data("label")} stay in registers inside ${first.from}.`;
    detail.replaceChildren(element("h3", edge.data("cut") ? "Why not fused?" : "Why fused?"), element("p", said, "muted"));
    const part = element("div");
    if (cuts.length > 1) {
      const list = element("select");
      list.setAttribute("aria-label", "Tensor");
      cuts.forEach((cut, i) => {
        const option = element("option", `${cut.tensor} (${cut.size}), ${cut.from} to ${cut.to}`);
        option.value = String(i);
        list.append(option);
      });
      list.addEventListener("change", () => why(part, cuts[list.value]));
      detail.append(list);
    }
    detail.append(part);
    if (first.a && first.b) why(part, first);
    else part.replaceChildren(element("p", "The ends of this tensor are not in the plan.", "muted"));
    keep("edge", `${first.a}~${first.b}`, "box");
  };

  const open = (id) => {
    opened = id;
    keep("expand", id);
    detail.replaceChildren(hint);
    load();
  };

  const picture = (kind) => {
    const name = `partition-${place.dataset.source.split("/")[2].slice(0, 12)}`;
    if (kind === "json") {
      fuseplan.save(new Blob([JSON.stringify(view, null, 1)], { type: "application/json" }), `${name}.json`);
      return;
    }
    if (kind === "svg") {
      fuseplan.save(new Blob([fuseplan.svgOf(graph)], { type: "image/svg+xml" }), `${name}.svg`);
      return;
    }
    fuseplan.pngOf(graph).then((blob) => fuseplan.save(blob, `${name}.png`));
  };

  const tools = () => {
    const bar = element("div", undefined, "graph-tools");
    const add = (text, label, act) => {
      const button = press(text, act);
      button.setAttribute("aria-label", label);
      bar.append(button);
    };
    if (opened) add("Close", "Close what was opened", () => open(""));
    add("+", "Zoom in", () => zoom(1.3));
    add("−", "Zoom out", () => zoom(1 / 1.3));
    add("Fit", "Show the whole graph", () => graph.fit(undefined, 24));
    add("PNG", "Download the drawing as PNG", () => picture("png"));
    add("SVG", "Download the drawing as SVG", () => picture("svg"));
    add("JSON", "Download boxes and arrows as JSON", () => picture("json"));
    return bar;
  };

  const zoom = (factor) =>
    graph.zoom({
      level: graph.zoom() * factor,
      renderedPosition: { x: place.clientWidth / 2, y: place.clientHeight / 2 },
    });

  // Start where a person can read: at the first boxes, not at a speck of the whole.
  const look = () => {
    graph.fit(undefined, 24);
    if (graph.zoom() >= 0.75) return;
    const { w: wide } = graph.elements().boundingBox();
    graph.zoom(Math.max(0.7, Math.min(1, (place.clientWidth - 48) / wide)));
    const inner = graph.nodes("[?inner]");
    const focus = inner.length ? inner[0]
      : opened ? graph.nodes().filter((n) => Number(n.id().split("-")[0]) >= Number(opened.split("-")[0]))[0]
        : graph.nodes().roots()[0] ?? graph.nodes()[0];
    graph.center(focus);
    const shown = graph.elements().renderedBoundingBox();
    const aside = shown.w <= place.clientWidth ? (place.clientWidth - shown.x1 - shown.x2) / 2 : 0;
    graph.panBy({ x: aside, y: 70 - focus.renderedPosition().y });
  };

  // Inside an opened kernel arrows end at nodes: with arrows to groups dagre has no ranks.
  const elements = () => {
    const most = Math.max(1, ...view.edges.map((edge) => edge.bytes));
    const inner = new Set(view.nodes.map((node) => node.id));
    const group = view.nodes.length ? view.nodes[0].parent : "";
    const end = (box, node, isFrom) =>
      box !== group ? box : inner.has(node) ? node : view.nodes[isFrom ? view.nodes.length - 1 : 0].id;
    const cut = (edge, i) => ({
      data: {
        ...edge, id: `e${i}`, cut: true, part: edge.bytes / most,
        source: end(edge.source, edge.cuts[0].a, true), target: end(edge.target, edge.cuts[0].b, false),
        from: edge.cuts[0].from, to: edge.cuts[0].to,
      },
    });
    const kept = (line, i) => {
      const kernel = view.boxes.find((box) => box.id === group).label;
      const told = { tensor: line.tensor, size: line.label, a: line.source, b: line.target, from: kernel, to: kernel };
      return { data: { ...line, id: `l${i}`, kept: true, cuts: [told] } };
    };
    return [
      ...view.boxes.map((box) => ({ data: { ...box, short: brief(box.detail), run: typeof box.kernels === "number" } })),
      ...view.nodes.map((node) => ({ data: { ...node, inner: true } })),
      ...view.edges.map(cut),
      ...view.links.map(kept),
    ];
  };

  const show = () => {
    if (graph) graph.destroy();
    place.replaceChildren();
    if (!view.boxes.length) {
      place.append(element("p", "This plan has no kernel: its outputs are inputs or constants.", "placeholder"));
      return;
    }
    const canvas = element("div", undefined, "graph");
    place.append(canvas, tools());
    graph = cytoscape({
      container: canvas, elements: elements(), style: style(),
      layout: { name: "dagre", rankDir: "TB", nodeSep: 24, rankSep: 44, animate: false },
      minZoom: 0.05, maxZoom: 2.5, boxSelectionEnabled: false,
    });
    look();
    graph.on("tap", "node", (event) => choose(event.target));
    graph.on("tap", "edge", (event) => chooseEdge(event.target));
    graph.on("dbltap", "node", (event) => { if (!event.target.data("inner")) open(event.target.id()); });
    place.dataset.boxes = String(view.boxes.length + view.nodes.length);
    const asked = new URLSearchParams(location.search).get("edge");
    const edge = asked && graph.edges().filter((e) => e.data("cuts").some((cut) => `${cut.a}~${cut.b}` === asked))[0];
    const box = graph.getElementById(new URLSearchParams(location.search).get("box") ?? "");
    if (edge) {
      chooseEdge(edge);
      graph.center(edge);
    } else if (box.length) {
      choose(box);
      graph.center(box);
    }
  };

  const load = async () => {
    place.setAttribute("aria-busy", "true");
    try {
      const answer = await fetch(address());
      if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
      view = await answer.json();
      show();
    } catch (error) {
      place.replaceChildren(element("p", `The partition could not be loaded (${error.message}). Reload the page to try again.`, "placeholder"));
    } finally {
      place.removeAttribute("aria-busy");
    }
  };

  // Arrow keys walk the boxes, w walks the arrows at one and asks about each.
  place.addEventListener("keydown", (event) => {
    if (!graph || event.target.closest(".graph-tools")) return;
    const nodes = graph.nodes();
    const selected = nodes.filter(":selected")[0];
    const at = selected ? nodes.indexOf(selected) : -1;
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (step) {
      const next = nodes[Math.min(nodes.length - 1, Math.max(0, at + step))];
      choose(next);
      graph.center(next);
    } else if (event.key === "w") {
      const held = graph.edges(":selected")[0];
      const box = selected ?? held?.source();
      const edges = box ? box.connectedEdges() : graph.edges();
      if (edges.length) chooseEdge(edges[held ? (edges.indexOf(held) + 1) % edges.length : 0]);
    } else if (event.key === "Enter" && selected && !selected.data("inner")) open(selected.id());
    else if (event.key === "Escape" && opened) open("");
    else if (event.key === "+") zoom(1.3);
    else if (event.key === "-") zoom(1 / 1.3);
    else return;
    event.preventDefault();
  });

  document.addEventListener("fuseplan:theme", () => fuseplan.afterPaint(() => graph && graph.style(style())));
  load();
}
