#include "converters/blocks/window_projector.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

namespace ferry::converters {
namespace {

class WindowProjector {
 public:
  WindowProjector(GraphBuilder& b, const WindowProjectorConfig& config, const RowBlocks& windows)
      : b_(b), p_(config), windows_(windows), rows_(windows.times(config.queries)) {}

  ValueId build(ValueId states, int64_t size, int64_t width) {
    states_ = fill_blocks(b_, windows_, states, size);
    ValueId x = queries();
    for (int64_t layer = 0; layer < p_.num_layers; ++layer) {
      x = attend(x, x, p_.hidden_size, p_.queries, part(layer, "attention"));
      if (p_.attends_to_states(layer)) {
        x = attend(x, states_, size, p_.window, part(layer, "cross_attention"));
      }
      x = mlp(x, part(layer, "feed_forward"));
    }
    return projection(b_, x, "audio.projector.output", p_.hidden_size, width, /*bias=*/true);
  }

 private:
  static std::string part(int64_t layer, const char* name) {
    return fmt::format("audio.projector.layers.{}.{}", layer, name);
  }
  // The queries of all windows, f32 [1,rows,hidden_size].
  ValueId queries() {
    const int64_t all = p_.queries * p_.hidden_size;
    const ValueId learned = b_.weight_f32(
        "audio.projector.queries", {batch(), positions(p_.queries), features(p_.hidden_size)});
    const ValueId normed = layer_norm(b_, learned, "audio.projector.norm", p_.norm_eps);
    const ValueId row = b_.view(normed, {batch(), positions(1), features(all)});
    const ValueId each = b_.expand(row, {batch(), positions(windows_.count), features(all)});
    return b_.view(each, {batch(), positions(rows_), features(p_.hidden_size)});
  }
  // [1,windows each,hidden_size] -> [windows,each,heads,head_dim]
  ValueId by_head(ValueId x, int64_t each) {
    return b_.view(x, {windows_.count, each, heads(p_.num_heads), head_dim(dim())});
  }
  int64_t dim() const { return p_.hidden_size / p_.num_heads; }

  // Attention of the queries of a window to `each` rows of it, of `size` values, and the norm
  // behind it.
  ValueId attend(ValueId x, ValueId to, int64_t size, int64_t each, const std::string& prefix) {
    const int64_t width = p_.hidden_size;
    const Dim all = windows_.times(p_.num_heads);
    const ValueId q = b_.mul(projection(b_, x, prefix + ".wq", width, width, /*bias=*/true),
                             1.0 / std::sqrt(static_cast<double>(dim())));
    const ValueId k = projection(b_, to, prefix + ".wk", size, width, /*bias=*/true);
    const ValueId v = projection(b_, to, prefix + ".wv", size, width, /*bias=*/true);
    const ValueId rows =
        b_.view(b_.permute(by_head(q, p_.queries), {0, 2, 1, 3}), {all, p_.queries, dim()});
    const ValueId keys = b_.view(b_.permute(by_head(k, each), {0, 2, 3, 1}), {all, dim(), each});
    const ValueId values = b_.view(b_.permute(by_head(v, each), {0, 2, 1, 3}), {all, each, dim()});
    const ValueId mixed = b_.bmm(b_.softmax_last(b_.bmm(rows, keys)), values);
    const ValueId split =
        b_.view(mixed, {windows_.count, heads(p_.num_heads), p_.queries, head_dim(dim())});
    const ValueId joined =
        b_.view(b_.permute(split, {0, 2, 1, 3}), {batch(), positions(rows_), features(width)});
    const ValueId out = projection(b_, joined, prefix + ".wo", width, width, /*bias=*/true);
    return layer_norm(b_, b_.add(out, x), prefix + ".norm", p_.norm_eps);
  }
  ValueId mlp(ValueId x, const std::string& prefix) {
    const int64_t width = p_.hidden_size, wide = p_.intermediate_size;
    const ValueId inner =
        activate(b_, p_.activation, projection(b_, x, prefix + ".w1", width, wide, /*bias=*/true));
    const ValueId out = projection(b_, inner, prefix + ".w2", wide, width, /*bias=*/true);
    return layer_norm(b_, b_.add(out, x), prefix + ".norm", p_.norm_eps);
  }

  GraphBuilder& b_;
  const WindowProjectorConfig& p_;
  const RowBlocks& windows_;
  const Dim rows_;
  ValueId states_;
};

}  // namespace

ValueId project_windows(GraphBuilder& b, const WindowProjectorConfig& config,
                        const RowBlocks& windows, ValueId states, int64_t size, int64_t width) {
  return WindowProjector(b, config, windows).build(states, size, width);
}

}  // namespace ferry::converters
