// Two partitions beside each other: choose a kernel, see who does its work on the other side.
"use strict";
{
  const { brief, colour, duration, element, press, svgOf, pngOf, save, say, narrow } = fuseplan;
  const place = document.getElementById("sides");
  const panes = [...place.querySelectorAll(".side")];
  const told = document.getElementById("sides-told");
  const names = panes.map((pane) => pane.dataset.label);
  const graphs = [];
  let view = null;

  const style = () => [
    {
      selector: "node",
      style: {
        shape: "round-rectangle", width: 190, height: 44,
        "background-color": colour("raised"), "border-width": 1.5, "border-color": (n) => colour(n.data("family")) || colour("library"),
        label: (n) => `${n.data("label")}${n.data("time") ? `   ${n.data("time")}` : ""}\n${n.data("short")}`,
        "text-wrap": "wrap", "text-max-width": 186, "text-valign": "center", "text-halign": "center",
        "font-size": 10.5, "line-height": 1.3, color: colour("ink"), "font-family": getComputedStyle(document.body).fontFamily,
      },
    },
    { selector: "node[kernels > 1]", style: { "border-style": "double", "border-width": 4 } },
    { selector: "node[?same]", style: { color: colour("soft"), "border-opacity": 0.45, "border-style": "dotted" } },
    { selector: "node.mark", style: { "background-color": colour("tint"), "border-width": 3, "border-opacity": 1, "border-style": "solid", color: colour("ink") } },
    {
      selector: "edge",
      style: {
        width: 1.2, "line-color": colour("line-strong"), "target-arrow-color": colour("line-strong"), "target-arrow-shape": "triangle",
        "arrow-scale": 0.8, "curve-style": "bezier", label: "data(label)", "font-size": 9, color: colour("soft"),
        "text-background-color": colour("raised"), "text-background-opacity": 1, "text-background-padding": 2, "min-zoomed-font-size": 7,
      },
    },
  ];

  const sum = (nodes) => {
    const times = nodes.map((node) => node.data("seconds"));
    return times.length && times.every((time) => time !== null) ? `, ${duration(times.reduce((a, b) => a + b, 0))}` : "";
  };
  const said = (nodes) => {
    const kernels = nodes.reduce((all, node) => all + node.data("kernels"), 0);
    const labels = nodes.slice(0, 4).map((node) => node.data("label")).join(", ") + (nodes.length > 4 ? ` and ${nodes.length - 4} more` : "");
    return `${labels} (${kernels} kernel${kernels === 1 ? "" : "s"}${sum(nodes)})`;
  };

  const choose = (side, node) => {
    for (const graph of graphs) graph.nodes().removeClass("mark");
    node.addClass("mark");
    const query = new URLSearchParams(location.search);
    query.set("box", `${side}:${node.id()}`);
    history.replaceState(null, "", `${location.pathname}?${query}`);
    const other = graphs[1 - side];
    if (!view.same_graph || !other) {
      told.textContent = `${names[side]}: ${said([node])}. The plans are of different graphs: nothing is matched.`;
      return;
    }
    const mine = new Set(node.data("nodes"));
    const found = other.nodes().filter((one) => one.data("nodes").some((id) => mine.has(id)));
    found.addClass("mark");
    if (found.length) other.animate({ center: { eles: found }, duration: matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 160 });
    told.textContent = found.length
      ? `${names[side]}: ${said([node])}. The same nodes are in ${names[1 - side]}: ${said(found.toArray())}.`
      : `${names[side]}: ${said([node])}. No kernel of ${names[1 - side]} holds these nodes.`;
  };

  // Begin at the top at a size that can be read; the wheel and the keys go on from there.
  const look = (graph, pane) => {
    graph.fit(undefined, 16);
    if (graph.zoom() >= 0.75) return;
    graph.zoom(narrow() ? 0.7 : 0.8);
    const first = graph.nodes().roots()[0] ?? graph.nodes()[0];
    graph.center(first);
    graph.panBy({ x: 0, y: 76 - first.renderedPosition().y });
    pane.dataset.cut = "yes";
  };

  const tools = (side) => {
    const bar = element("div", undefined, "graph-tools");
    const file = `${place.dataset.name}-${names[side].replace(/[^a-z0-9]+/gi, "-")}`;
    const add = (text, label, act) => {
      const button = press(text, act);
      button.setAttribute("aria-label", `${label}: ${names[side]}`);
      bar.append(button);
    };
    const zoom = (factor) => graphs[side].zoom({ level: graphs[side].zoom() * factor, renderedPosition: { x: panes[side].clientWidth / 2, y: panes[side].clientHeight / 2 } });
    add("+", "Zoom in", () => zoom(1.3));
    add("−", "Zoom out", () => zoom(1 / 1.3));
    add("Fit", "Show the whole graph", () => graphs[side].fit(undefined, 16));
    add("PNG", "Download as PNG", () => pngOf(graphs[side]).then((blob) => save(blob, `${file}.png`)));
    add("SVG", "Download as SVG", () => save(new Blob([svgOf(graphs[side])], { type: "image/svg+xml" }), `${file}.svg`));
    return bar;
  };

  const draw = (side) => {
    const pane = panes[side];
    const { boxes, edges } = view.sides[side];
    if (!boxes.length) return say(pane, "This plan has no kernel: its outputs are inputs or constants.");
    const canvas = element("div", undefined, "graph");
    pane.replaceChildren(canvas, tools(side));
    graphs[side] = cytoscape({
      container: canvas, style: style(),
      elements: [
        ...boxes.map((box) => ({ data: { ...box, short: brief(box.detail) } })),
        ...edges.map((edge, i) => ({ data: { ...edge, id: `e${i}`, cut: true } })),
      ],
      layout: { name: "dagre", rankDir: "TB", nodeSep: 20, rankSep: 36, animate: false },
      minZoom: 0.05, maxZoom: 2.5, boxSelectionEnabled: false,
    });
    look(graphs[side], pane);
    graphs[side].on("tap", "node", (event) => choose(side, event.target));
    pane.dataset.boxes = String(boxes.length);
  };

  const keys = (side) => (event) => {
    const graph = graphs[side];
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (!graph || !step || event.target.closest(".graph-tools")) return;
    const nodes = graph.nodes();
    const at = nodes.indexOf(nodes.filter(".mark")[0] ?? nodes[0]);
    const isNew = !nodes.filter(".mark").length;
    const next = nodes[isNew ? 0 : Math.min(nodes.length - 1, Math.max(0, at + step))];
    choose(side, next);
    graph.center(next);
    event.preventDefault();
  };

  const start = async () => {
    place.setAttribute("aria-busy", "true");
    try {
      const answer = await fetch(place.dataset.source);
      if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
      view = await answer.json();
    } catch (error) {
      for (const pane of panes) say(pane, `The partition could not be loaded (${error.message}). Reload the page to try again.`);
      return;
    } finally {
      place.removeAttribute("aria-busy");
    }
    panes.forEach((pane, side) => {
      draw(side);
      pane.addEventListener("keydown", keys(side));
    });
    const [side, box] = (new URLSearchParams(location.search).get("box") ?? "").split(":");
    const asked = graphs[side]?.getElementById(box ?? "");
    if (asked?.length) {
      choose(Number(side), asked);
      graphs[side].center(asked);
    }
    place.dataset.drawn = "yes";
  };
  document.addEventListener("fuseplan:theme", () => fuseplan.afterPaint(() => graphs.forEach((graph) => graph.style(style()))));
  start();
}
