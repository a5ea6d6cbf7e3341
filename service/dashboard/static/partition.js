// The partition graph: boxes by dagre, details beside it, runs open on a click.
"use strict";
{
  const place = document.getElementById("partition");
  const detail = document.getElementById("partition-detail");
  const colour = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  let graph = null;
  let opened = "";

  const element = (tag, text, kind) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (kind) made.className = kind;
    return made;
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
    { selector: "node:selected", style: { "background-color": colour("tint"), "border-width": 3 } },
    {
      selector: "edge",
      style: {
        width: 1.2, "line-color": colour("line-strong"), "target-arrow-color": colour("line-strong"),
        "target-arrow-shape": "triangle", "arrow-scale": 0.8, "curve-style": "bezier",
        label: "data(label)", "font-size": 9, color: colour("soft"),
        "text-background-color": colour("raised"), "text-background-opacity": 1, "text-background-padding": 2,
        "min-zoomed-font-size": 7,
      },
    },
    { selector: "edge.near", style: { "line-color": colour("accent"), "target-arrow-color": colour("accent"), width: 2 } },
  ];

  const shorten = (text) => (text.length > 28 ? `${text.slice(0, 27)}…` : text);

  const address = () => {
    const query = new URLSearchParams();
    if (opened) query.set("expand", opened);
    if (place.dataset.job) query.set("job", place.dataset.job);
    return `${place.dataset.source}?${query}`;
  };

  const pairs = (facts) => {
    const list = element("dl", undefined, "pairs");
    for (const [name, value] of facts) list.append(element("dt", name), element("dd", value));
    return list;
  };

  const explain = (node) => {
    const data = node.data();
    const facts = [
      ["Family", data.family],
      ["Time", `${data.time} ${data.measured ? "measured" : "predicted"}`],
    ];
    const incoming = node.incomers("edge").map((e) => e.data("label"));
    const outgoing = node.outgoers("edge").map((e) => e.data("label"));
    if (incoming.length) facts.push(["Reads", incoming.join(", ")]);
    if (outgoing.length) facts.push(["Passes on", outgoing.join(", ")]);
    if (data.ops) facts.push(["Operators", data.ops]);
    detail.replaceChildren(element("h3", data.label), element("p", data.detail, "muted"), pairs(facts));
    if (data.run) {
      const button = element("button", `Open ${data.kernels} kernels`);
      button.type = "button";
      button.addEventListener("click", () => open(data.id));
      detail.append(button);
    } else if (document.getElementById(data.label)) {
      const link = element("a", "Row in the kernel table");
      link.href = `#${data.label}`;
      detail.append(link);
    }
  };

  const choose = (node) => {
    graph.elements().unselect();
    graph.edges().removeClass("near");
    node.select();
    node.connectedEdges().addClass("near");
    explain(node);
  };

  const hint = detail.firstElementChild;
  const open = (id) => {
    opened = id;
    detail.replaceChildren(hint);
    load();
  };

  const tools = () => {
    const bar = element("div", undefined, "graph-tools");
    const add = (text, label, act) => {
      const button = element("button", text);
      button.type = "button";
      button.setAttribute("aria-label", label);
      button.addEventListener("click", act);
      bar.append(button);
    };
    if (opened) add("Close", "Close the opened run", () => open(""));
    add("+", "Zoom in", () => zoom(1.3));
    add("−", "Zoom out", () => zoom(1 / 1.3));
    add("Fit", "Show the whole graph", () => graph.fit(undefined, 24));
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
    graph.zoom(1);
    const focus = opened
      ? graph.nodes().filter((n) => Number(n.id().split("-")[0]) >= Number(opened.split("-")[0]))[0]
      : graph.nodes().roots()[0] ?? graph.nodes()[0];
    graph.center(focus);
    graph.panBy({ x: 0, y: 40 - focus.renderedPosition().y });
  };

  const show = (view) => {
    if (graph) graph.destroy();
    place.replaceChildren();
    if (!view.boxes.length) {
      place.append(element("p", "This plan has no kernel: its outputs are inputs or constants.", "placeholder"));
      return;
    }
    const canvas = element("div", undefined, "graph");
    place.append(canvas, tools());
    graph = cytoscape({
      container: canvas,
      elements: [
        ...view.boxes.map((box) => ({
          data: { ...box, short: shorten(box.detail), run: typeof box.kernels === "number" },
        })),
        ...view.edges.map((edge, i) => ({ data: { ...edge, id: `e${i}` } })),
      ],
      style: style(),
      layout: { name: "dagre", rankDir: "TB", nodeSep: 24, rankSep: 44, animate: false },
      minZoom: 0.05, maxZoom: 2.5, boxSelectionEnabled: false,
    });
    look();
    graph.on("tap", "node", (event) => choose(event.target));
    graph.on("dbltap", "node[?run]", (event) => open(event.target.id()));
    place.dataset.boxes = String(view.boxes.length);
  };

  const load = async () => {
    place.setAttribute("aria-busy", "true");
    try {
      const answer = await fetch(address());
      if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
      show(await answer.json());
    } catch (error) {
      place.replaceChildren(element("p", `The partition could not be loaded (${error.message}). Reload the page to try again.`, "placeholder"));
    } finally {
      place.removeAttribute("aria-busy");
    }
  };

  place.addEventListener("keydown", (event) => {
    if (!graph) return;
    const nodes = graph.nodes();
    const at = nodes.indexOf(nodes.filter(":selected")[0] ?? nodes[0]);
    const chosen = nodes.filter(":selected").length > 0;
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (step) {
      const next = nodes[chosen ? Math.min(nodes.length - 1, Math.max(0, at + step)) : 0];
      choose(next);
      graph.center(next);
    } else if (event.key === "Enter" && chosen && nodes[at].data("run")) open(nodes[at].id());
    else if (event.key === "Escape" && opened) open("");
    else if (event.key === "+") zoom(1.3);
    else if (event.key === "-") zoom(1 / 1.3);
    else return;
    event.preventDefault();
  });

  document.addEventListener("fuseplan:theme", () => graph && graph.style(style()));
  load();
}
