// Squarified treemap (Bruls, Huizing, van Wijk 2000): the area of a box is its size, and rows are
// filled so that boxes are nearly square.

const headHeight = 18;  // height of the strip with a group's name, in pixels
const smallestSide = 3;  // a group with a shorter side is drawn as one box

// Returns the worst ratio of sides in a row of boxes with areas from `least` to `most` and the
// total area `sum`, laid along a side of length `side`.
function worstRatio(least, most, sum, side) {
  const square = side * side;
  return Math.max(square * most / (sum * sum), sum * sum / (square * least));
}

// Places `nodes` (size > 0, largest first) in the rectangle and calls place(node, x, y, w, h).
function squarify(nodes, x, y, w, h, place) {
  let left = nodes.reduce((sum, node) => sum + node.size, 0);
  for (let start = 0; start < nodes.length && w > 0 && h > 0;) {
    const scale = w * h / left;
    const side = Math.min(w, h);
    const most = nodes[start].size * scale;
    let sum = most;
    let end = start + 1;
    let worst = worstRatio(most, most, sum, side);
    for (; end < nodes.length; ++end) {
      const area = nodes[end].size * scale;
      const next = worstRatio(area, most, sum + area, side);
      if (next > worst) break;
      worst = next;
      sum += area;
    }
    const thick = sum / side;
    const across = w >= h;  // true: the row is a column at the left; false: the row lies at the top
    let at = across ? y : x;
    for (let i = start; i < end; ++i) {
      const long = nodes[i].size * scale / thick;
      if (across)
        place(nodes[i], x, at, thick, long);
      else
        place(nodes[i], at, y, long, thick);
      at += long;
      left -= nodes[i].size;
    }
    if (across) {
      x += thick;
      w -= thick;
    } else {
      y += thick;
      h -= thick;
    }
    start = end;
  }
}

// Returns the boxes of a tree, groups before their contents: {node, x, y, w, h, head}. `head` is
// the height of the strip with the group's name, 0 if the name does not fit. A group that is too
// small for its contents has one box.
function layoutTree(root, width, height) {
  const boxes = [];
  const inside = (node, x, y, w, h, depth) => {
    const named = depth > 0 && w > 46 && h > 40;
    const gap = depth === 0 ? 0 : named ? 2 : w > 12 && h > 12 ? 1 : 0;
    const head = named ? headHeight : gap;
    boxes.push({node, x, y, w, h, head: named ? headHeight : 0, depth});
    if (!node.children || Math.min(w, h) < smallestSide) return;
    const sized = node.children.filter((child) => child.size > 0);
    const top = depth === 0 ? 0 : head;
    squarify(
        sized, x + gap, y + top, w - 2 * gap, h - top - gap,
        (child, cx, cy, cw, ch) => inside(child, cx, cy, cw, ch, depth + 1));
  };
  inside(root, 0, 0, width, height, 0);
  return boxes;
}

// Returns the innermost box at a point.
function boxAt(boxes, x, y) {
  for (let i = boxes.length - 1; i > 0; --i) {
    const box = boxes[i];
    if (x >= box.x && x < box.x + box.w && y >= box.y && y < box.y + box.h) return box;
  }
  return null;
}
