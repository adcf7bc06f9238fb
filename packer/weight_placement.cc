// place_weights() stores each distinct recipe once in the whole bundle, in a data file of the first
// part that uses it, under all names that any part has for it.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "core/text.h"
#include "packer/bundle_examination.h"
#include "packer/bundle_plan_impl.h"

namespace ferry::packer {
namespace {

// Returns a hash key. Equal recipes have equal keys; recipes with equal keys may still differ.
size_t bucket_of(const graph::Recipe& recipe) {
  size_t key = static_cast<size_t>(recipe.output().dtype) + 32 * recipe.pieces.size();
  if (!recipe.pieces.empty()) {
    key = key * 1000003 + recipe.pieces[0].tensor;
    key = key * 1000003 + static_cast<size_t>(recipe.pieces[0].offset);
  }
  return key;
}

class Placer {
 public:
  explicit Placer(std::span<const BundleInput::Part* const> parts) : parts_(parts) {}

  Status collect() {
    for (size_t part = 0; part < parts_.size(); ++part) {
      needs_.emplace_back();
      const graph::LoweredProgram& lowered = *parts_[part]->lowered;
      for (const std::string& key : lowered.weights) {
        FERRY_RETURN_IF_ERROR(add(part, key));
        tensors_.insert(key);
      }
      for (const std::string& key : lowered.named) FERRY_RETURN_IF_ERROR(add(part, key));
    }
    return {};
  }

  Status deal(uint64_t max_file_bytes) {
    for (size_t part = 0; part < parts_.size(); ++part) {
      std::span<const size_t> left = first_used_by(part);
      while (!left.empty()) {
        const size_t count = FERRY_TRY(fitting(left, max_file_bytes));
        result_.files.push_back(FERRY_TRY(plan_file(part, left.first(count))));
        left = left.subspan(count);
      }
    }
    return {};
  }

  WeightPlacement finish() {
    std::vector<size_t> file_of(result_.stored.size());
    for (size_t f = 0; f < result_.files.size(); ++f) {
      for (size_t stored : result_.files[f].stored) file_of[stored] = f;
    }
    for (const std::vector<size_t>& needs : needs_) {
      std::vector<size_t> files;
      for (size_t stored : needs) files.push_back(file_of[stored]);
      std::sort(files.begin(), files.end());
      files.erase(std::unique(files.begin(), files.end()), files.end());
      result_.part_files.push_back(std::move(files));
    }
    return std::move(result_);
  }

 private:
  static Failure defect(const std::string& name, std::string_view what) {
    return fail(ErrorCode::kInternal, fmt::format("weight {} {}", quoted(name), what));
  }

  // Adds the weight whose output is `key`, with all outputs of the weight.
  Status add(size_t part, const std::string& key) {
    const graph::StateDict* weights = parts_[part]->weights;
    const graph::Weight* weight = weights ? weights->find_output(key).weight : nullptr;
    if (!weight) return defect(key, "is wanted by a program but not bound");
    return add(part, *weight);
  }

  Status add(size_t part, const graph::Weight& weight) {
    const auto known = by_name_.find(weight.name);
    if (known != by_name_.end()) {
      if (*result_.stored[known->second].recipe != weight.recipe) {
        return defect(weight.name, "means different tensors in two parts");
      }
      needs_[part].push_back(known->second);
      return {};
    }
    for (int64_t size : weight.recipe.output().shape) {
      if (size < 0 || size > std::numeric_limits<int32_t>::max()) {
        return fail(ErrorCode::kUnsupported,
                    fmt::format("weight {} has shape {}, a data file holds sizes below 2^31",
                                quoted(weight.name), to_string(weight.recipe.output().shape)));
      }
    }
    for (size_t output = 0; output < weight.recipe.outputs.size(); ++output) {
      const std::string key = graph::key_of(weight, output);
      if (!keys_.insert(key).second) return defect(key, "is an output of two weights");
    }
    const size_t index = find_or_store(weight.recipe, part);
    result_.stored[index].keys.push_back(&weight);
    by_name_.emplace(weight.name, index);
    needs_[part].push_back(index);
    return {};
  }

  size_t find_or_store(const graph::Recipe& recipe, size_t part) {
    std::vector<size_t>& bucket = buckets_[bucket_of(recipe)];
    for (size_t index : bucket) {
      if (*result_.stored[index].recipe == recipe) return index;
    }
    bucket.push_back(result_.stored.size());
    first_part_.push_back(part);
    all_.push_back(result_.stored.size());
    result_.stored.push_back({&recipe, {}});
    return bucket.back();
  }

  // Recipes are numbered in order of first use, so the recipes of a part have consecutive numbers.
  std::span<const size_t> first_used_by(size_t part) const {
    const auto range = std::equal_range(first_part_.begin(), first_part_.end(), part);
    return std::span(all_).subspan(static_cast<size_t>(range.first - first_part_.begin()),
                                   static_cast<size_t>(range.second - range.first));
  }

  Result<WeightPlacement::DataFile> plan_file(size_t part, std::span<const size_t> stored) const {
    WeightPlacement::DataFile file;
    file.part = part;
    file.stored.assign(stored.begin(), stored.end());
    for (const size_t index : stored) {
      const WeightPlacement::Stored& item = result_.stored[index];
      for (size_t output = 0; output < item.recipe->outputs.size(); ++output) {
        for (const graph::Weight* weight : item.keys) {
          file.tensors.push_back(named_tensor(*weight, output, file.sizes.size()));
        }
        file.sizes.push_back(item.recipe->outputs[output].bytes());
      }
    }
    file.layout = FERRY_TRY(ptd::plan_data_file(file.tensors, file.sizes));
    return file;
  }

  ptd::NamedTensor named_tensor(const graph::Weight& weight, size_t output, size_t segment) const {
    const graph::RecipeOutput& made = weight.recipe.outputs[output];
    ptd::NamedTensor tensor{
        graph::key_of(weight, output), DType::kU8, {}, static_cast<uint32_t>(segment)};
    tensor.is_tensor = tensors_.contains(tensor.key);
    if (!tensor.is_tensor) return tensor;
    const StoredType stored = stored_type(made.dtype, made.shape);
    tensor.dtype = stored.dtype;
    tensor.sizes.assign(stored.shape.begin(), stored.shape.end());
    return tensor;
  }

  // Returns how many recipes at the front of `stored` fit into one file; at least one.
  Result<size_t> fitting(std::span<const size_t> stored, uint64_t limit) const {
    if (limit == 0) return stored.size();
    size_t high = 0;  // the largest count whose bytes fit
    for (uint64_t sum = 0; high < stored.size(); ++high) {
      for (const graph::RecipeOutput& output : result_.stored[stored[high]].recipe->outputs) {
        sum += output.bytes();
      }
      if (sum > limit) break;
    }
    size_t low = 0;  // a count that fits with header and padding
    while (low < high) {
      const size_t middle = high - (high - low) / 2;
      const auto file = FERRY_TRY(plan_file(0, stored.first(middle)));
      if (file.layout.file_bytes <= limit) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    if (low > 0) return low;
    const auto alone = FERRY_TRY(plan_file(0, stored.first(1)));
    return fail(
        ErrorCode::kUsage,
        fmt::format("a file of at most {} bytes cannot hold tensor {}, which needs {}", limit,
                    quoted(result_.stored[stored[0]].keys[0]->name), alone.layout.file_bytes));
  }

  std::span<const BundleInput::Part* const> parts_;
  WeightPlacement result_;
  std::vector<size_t> all_;         // 0, 1, 2, ...
  std::vector<size_t> first_part_;  // by index of the stored recipe, ascending
  std::vector<std::vector<size_t>> needs_;
  std::unordered_map<size_t, std::vector<size_t>> buckets_;
  std::unordered_map<std::string, size_t> by_name_;
  std::unordered_set<std::string> keys_;     // keys of all outputs
  std::unordered_set<std::string> tensors_;  // keys that some program reads as a tensor
};

}  // namespace

Result<WeightPlacement> place_weights(std::span<const BundleInput::Part* const> parts,
                                      uint64_t max_file_bytes) {
  Placer placer(parts);
  FERRY_RETURN_IF_ERROR(placer.collect());
  FERRY_RETURN_IF_ERROR(placer.deal(max_file_bytes));
  return placer.finish();
}

}  // namespace ferry::packer
