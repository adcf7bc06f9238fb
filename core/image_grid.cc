#include "core/image_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace ferry {
namespace {

// The two rows of a table of `table` rows around row `index` of an image of `size` rows, and their
// weights. The reference computes in f32.
struct Taps {
  std::array<int64_t, 2> rows;
  std::array<float, 2> weights;
};
Taps taps_of(int64_t index, int64_t size, int64_t table) {
  const float last = static_cast<float>(std::max<int64_t>(size - 1, 1));
  const float place = static_cast<float>(index) * static_cast<float>(table - 1) / last;
  const float floor = std::floor(place);
  Taps taps{};
  for (size_t i = 0; i < 2; ++i) {
    const float distance = std::abs(place - floor - static_cast<float>(i));
    taps.rows[i] =
        std::clamp<int64_t>(static_cast<int64_t>(floor) + static_cast<int64_t>(i), 0, table - 1);
    taps.weights[i] = std::max(1.0F - distance, 0.0F);
  }
  return taps;
}

struct Block {
  int64_t row, column, window;
};

// Returns the blocks of an image in the order of the encoder.
std::vector<Block> blocks_in_order(int64_t rows, int64_t columns, int64_t window) {
  const int64_t height = window > 0 ? window : rows, width = window > 0 ? window : columns;
  std::vector<Block> blocks;
  int64_t number = 0;
  for (int64_t top = 0; top < rows; top += height) {
    for (int64_t left = 0; left < columns; left += width, ++number) {
      for (int64_t row = top; row < std::min(top + height, rows); ++row) {
        for (int64_t column = left; column < std::min(left + width, columns); ++column) {
          blocks.push_back({row, column, number});
        }
      }
    }
  }
  return blocks;
}

}  // namespace

Status check_image_shape(const ImageGrid& grid, const ImageShape& shape, int64_t most_blocks,
                         const std::string& where) {
  const int64_t merge = grid.merge_size;
  if (merge < 1 || shape.rows < merge || shape.columns < merge || shape.rows % merge != 0 ||
      shape.columns % merge != 0) {
    return bad_input(
        fmt::format("{}: an image of {} x {} patches is not of whole blocks of {} x {}", where,
                    shape.rows, shape.columns, merge, merge));
  }
  const int64_t rows = shape.rows / merge, columns = shape.columns / merge;
  if (rows <= most_blocks && columns <= most_blocks && rows * columns <= most_blocks) return {};
  return bad_input(fmt::format(
      "{}: an image of {} x {} patches, where the vision encoder takes {} patches at most: convert "
      "with more --max-patches, or lower max_pixels of the image processor",
      where, shape.rows, shape.columns, most_blocks * merge * merge));
}

Status check_picture(const std::optional<ImageShape>& picture, const ImageShape& shape,
                     const std::string& where) {
  if (!picture || shape == *picture) return {};
  return bad_input(
      fmt::format("{}: an image of {} x {} patches, where the vision encoder takes {} x {} alone",
                  where, shape.rows, shape.columns, picture->rows, picture->columns));
}

GridInputs grid_inputs(const ImageGrid& grid, const ImageShape& shape) {
  const int64_t merge = grid.merge_size, columns = shape.columns / merge;
  GridInputs out;
  const auto count = static_cast<size_t>(shape.patches());
  std::vector<int64_t> patch_rows, patch_columns;
  patch_rows.reserve(count);
  patch_columns.reserve(count);
  for (const Block& block : blocks_in_order(shape.rows / merge, columns, grid.window_size)) {
    out.blocks.push_back(block.row * columns + block.column);
    for (int64_t at = 0; at < merge * merge; ++at) {
      patch_rows.push_back(block.row * merge + at / merge);
      patch_columns.push_back(block.column * merge + at % merge);
      out.windows.push_back(block.window);
    }
  }
  if (grid.table_size > 0) {
    out.table_rows.resize(4 * count);
    out.table_weights.resize(4 * count);
    for (size_t patch = 0; patch < count; ++patch) {
      const Taps down = taps_of(patch_rows[patch], shape.rows, grid.table_size);
      const Taps across = taps_of(patch_columns[patch], shape.columns, grid.table_size);
      for (size_t corner = 0; corner < 4; ++corner) {
        const size_t y = corner / 2, x = corner % 2, at = corner * count + patch;
        out.table_rows[at] = down.rows[y] * grid.table_size + across.rows[x];
        out.table_weights[at] = down.weights[y] * across.weights[x];
      }
    }
  }
  out.positions = std::move(patch_rows);
  out.positions.insert(out.positions.end(), patch_columns.begin(), patch_columns.end());
  return out;
}

GridInputs in_processor_order(const GridInputs& inputs) {
  const size_t blocks = inputs.blocks.size();
  const auto ordered = [&]<typename T>(const std::vector<T>& rows, size_t count) {
    std::vector<T> out(rows.size());
    const size_t row = count == 0 ? 0 : rows.size() / count, unit = row / blocks;
    for (size_t r = 0; r < count; ++r) {
      put_blocks(std::span(rows).subspan(r * row, row), inputs.blocks, unit, unit,
                 out.data() + r * row);
    }
    return out;
  };
  GridInputs out;
  for (size_t block = 0; block < blocks; ++block) {
    out.blocks.push_back(static_cast<int64_t>(block));
  }
  out.positions = ordered(inputs.positions, 2);
  out.windows = ordered(inputs.windows, 1);
  const size_t corners = inputs.table_rows.empty() ? 0 : 4;
  out.table_rows = ordered(inputs.table_rows, corners);
  out.table_weights = ordered(inputs.table_weights, corners);
  return out;
}

std::vector<float> patches_of_planes(std::span<const float> planes, int64_t height, int64_t width,
                                     const ImageGrid& grid, const ImageShape& shape) {
  const int64_t merge = grid.merge_size, patch = grid.patch_size;
  std::vector<float> out;
  out.reserve(static_cast<size_t>(shape.patches() * 3 * patch * patch));
  const auto append = [&](int64_t row, int64_t column) {
    for (int64_t channel = 0; channel < 3; ++channel) {
      for (int64_t y = row * patch; y < (row + 1) * patch; ++y) {
        const auto from =
            planes.subspan(static_cast<size_t>((channel * height + y) * width + column * patch),
                           static_cast<size_t>(patch));
        out.insert(out.end(), from.begin(), from.end());
      }
    }
  };
  for (const Block& block : blocks_in_order(shape.rows / merge, shape.columns / merge, 0)) {
    for (int64_t at = 0; at < merge * merge; ++at) {
      append(block.row * merge + at / merge, block.column * merge + at % merge);
    }
  }
  return out;
}

std::vector<float> planes_of_list(std::span<const float> list, const PatchList& patches,
                                  const ImageShape& shape) {
  const int64_t patch = patches.patch_size;
  const int64_t height = shape.rows * patch, width = shape.columns * patch;
  std::vector<float> out(static_cast<size_t>(3 * height * width));
  size_t from = 0;
  for (int64_t number = 0; number < shape.patches(); ++number) {
    const int64_t top = number / shape.columns * patch, left = number % shape.columns * patch;
    for (int64_t pixel = 0; pixel < patch * patch; ++pixel) {
      const int64_t row = top + pixel / patch, column = left + pixel % patch;
      for (int64_t channel = 0; channel < 3; ++channel) {
        out[static_cast<size_t>((channel * height + row) * width + column)] = list[from++];
      }
    }
  }
  return out;
}

Result<std::vector<float>> planes_of_patches(std::span<const float> patches, const ImageGrid& grid,
                                             const ImageShape& shape) {
  const int64_t merge = grid.merge_size, patch = grid.patch_size;
  const int64_t height = shape.rows * patch, width = shape.columns * patch;
  std::vector<float> out(static_cast<size_t>(3 * height * width));
  const auto frame = static_cast<size_t>(patch * patch);
  size_t from = 0;
  for (const Block& block : blocks_in_order(shape.rows / merge, shape.columns / merge, 0)) {
    for (int64_t at = 0; at < merge * merge; ++at) {
      const int64_t top = (block.row * merge + at / merge) * patch;
      const int64_t left = (block.column * merge + at % merge) * patch;
      for (int64_t channel = 0; channel < 3; ++channel) {
        for (int64_t y = 0; y < patch; ++y) {
          const auto row =
              patches.subspan(from + static_cast<size_t>(y * patch), static_cast<size_t>(patch));
          std::ranges::copy(row, out.begin() + (channel * height + top + y) * width + left);
        }
        for (int64_t more = 1; more < grid.temporal_patch_size; ++more) {
          const auto next = patches.subspan(from + static_cast<size_t>(more) * frame, frame);
          if (std::ranges::equal(next, patches.subspan(from, frame))) continue;
          return fail(ErrorCode::kUnsupported, "the frames of a patch differ: a video has such");
        }
        from += frame * static_cast<size_t>(grid.temporal_patch_size);
      }
    }
  }
  return out;
}

std::vector<float> without_row_marks(std::span<const float> values, int64_t blocks, int64_t lines) {
  const auto count = static_cast<size_t>(lines);
  const size_t step = values.size() / count,
               width = values.size() / static_cast<size_t>(blocks + lines);
  std::vector<float> kept;
  for (size_t line = 0; line < count; ++line) {
    const auto row = values.subspan(line * step, step - width);
    kept.insert(kept.end(), row.begin(), row.end());
  }
  return kept;
}

std::vector<float> take_blocks(std::span<const float> values, std::span<const int64_t> blocks) {
  std::vector<float> out;
  if (blocks.empty()) return out;
  const size_t size = values.size() / blocks.size();
  out.reserve(values.size());
  for (const int64_t block : blocks) {
    const auto from = values.subspan(static_cast<size_t>(block) * size, size);
    out.insert(out.end(), from.begin(), from.end());
  }
  return out;
}

void fit_list_length(Shape& shape, std::vector<float>& pixels, int64_t patches) {
  const auto width = static_cast<size_t>(shape[2]);
  const size_t from = static_cast<size_t>(shape[1]) * width;
  const size_t to = static_cast<size_t>(patches) * width;
  std::vector<float> fitted(static_cast<size_t>(shape[0]) * to, 0.0F);
  for (size_t i = 0; i < static_cast<size_t>(shape[0]); ++i) {
    const auto list = std::span(pixels).subspan(i * from, std::min(from, to));
    std::ranges::copy(list, fitted.begin() + static_cast<std::ptrdiff_t>(i * to));
  }
  pixels = std::move(fitted);
  shape[1] = patches;
}

}  // namespace ferry
