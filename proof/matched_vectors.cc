#include "proof/matched_vectors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "core/text.h"
#include "proof/weight_proof.h"
#include "proof/weight_rows.h"

namespace ferry::proof {
namespace {

// A vector of the program is taken for a changed one of the checkpoint if the squares of their
// differences are below this share of the squares of its values.
constexpr double kChanged = 0.0625;

std::vector<float> rounded(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> stored(values.size() * static_cast<size_t>(dtype_bytes(dtype)));
  std::vector<float> out(values.size());
  from_f32(dtype, values.data(), stored.data(), values.size());
  to_f32(dtype, stored.data(), out.data(), out.size());
  return out;
}

// Returns the bits of the values, which order NaN too.
std::string bits_of(const std::vector<float>& values) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<float> plus_one(std::vector<float> values) {
  for (float& value : values) value += 1.0F;
  return values;
}

std::vector<float> in_order(const std::vector<float>& values, const RowOrder& order) {
  std::vector<float> out(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    out[static_cast<size_t>(order.place_of(static_cast<int64_t>(i)))] = values[i];
  }
  return out;
}

class VectorMatcher {
 public:
  VectorMatcher(const std::vector<ProgramVector>& constants, const plan::Conversion& layers)
      : constants_(constants), layers_(layers), weights_(vectors_of(layers)) {}

  Result<MatchedVectors> run() {
    index_constants();
    for (const WeightRows& weight : weights_) FERRY_RETURN_IF_ERROR(match(weight));
    for (const WeightRows& weight : weights_) {
      if (!found_.contains(weight.name)) FERRY_RETURN_IF_ERROR(look_for_changed(weight));
    }
    check_order();
    out_.vectors = weights_.size();
    out_.found = found_.size();
    return std::move(out_);
  }

 private:
  using Key = std::pair<DType, std::string>;  // bits of the values
  struct Count {
    size_t found = 0, all = 0;
  };

  // Constants of other sizes than the model's vectors are not looked at.
  void index_constants() {
    std::set<int64_t> sizes;
    for (const WeightRows& weight : weights_) sizes.insert(weight.columns);
    for (size_t i = 0; i < constants_.size(); ++i) {
      if (!sizes.contains(constants_[i].size)) continue;
      dtypes_.insert(constants_[i].dtype);
      const std::vector<float> values = constants_[i].values();
      shifted_.emplace(bits_of(plus_one(values)), i);
      plain_.emplace(Key(constants_[i].dtype, bits_of(values)), i);
    }
  }

  Result<std::vector<float>> values_of(const WeightRows& weight) const {
    std::vector<float> values(static_cast<size_t>(weight.columns));
    FERRY_RETURN_IF_ERROR(read_rows(weight, *layers_.mapped.source, 0, values));
    return values;
  }

  std::optional<size_t> find(const std::vector<float>& values) const {
    for (const DType dtype : dtypes_) {
      const auto found = plain_.find(Key(dtype, bits_of(rounded(values, dtype))));
      if (found != plain_.end()) return found->second;
    }
    const auto found = shifted_.find(bits_of(values));
    return found == shifted_.end() ? std::nullopt : std::optional(found->second);
  }

  Status match(const WeightRows& weight) {
    Count& kind = kinds_[kind_of(weight.name)];
    kind.all += 1;
    const std::vector<float> values = FERRY_TRY(values_of(weight));
    for (const RowOrder& order : orders_of(weight, layers_.mapped.config)) {
      const std::optional<size_t> constant = find(in_order(values, order));
      if (!constant) continue;
      found_.emplace(weight.name, *constant);
      taken_.insert(*constant);
      kind.found += 1;
      break;
    }
    return {};
  }

  // The share of the squares of `want` that the squares of the differences have.
  static double distance(const std::vector<float>& have, const std::vector<float>& want) {
    double noise = 0, signal = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      const double error = double{have[i]} - want[i];
      noise += error * error;
      signal += double{want[i]} * want[i];
    }
    return signal > 0 ? noise / signal : 1;
  }

  // A constant that no weight has, beside what a weight should be.
  struct Changed {
    double distance = kChanged;
    size_t constant = 0;
    std::vector<float> have = {}, want = {};
  };

  Status look_for_changed(const WeightRows& weight) {
    const Changed best = nearest(weight, FERRY_TRY(values_of(weight)));
    if (!best.have.empty()) {
      taken_.insert(best.constant);
      add_changed(weight, best);
    } else if (const Count& kind = kinds_[kind_of(weight.name)]; 2 * kind.found > kind.all) {
      out_.different.push_back(
          fmt::format("{}: no vector of the program has its values", quoted(weight.name)));
    }
    return {};
  }

  Changed nearest(const WeightRows& weight, const std::vector<float>& values) const {
    Changed best;
    std::vector<std::vector<float>> wanted;
    for (const RowOrder& order : orders_of(weight, layers_.mapped.config)) {
      wanted.push_back(in_order(values, order));
    }
    for (size_t i = 0; i < constants_.size(); ++i) {
      if (constants_[i].size != weight.columns || taken_.contains(i)) continue;
      const std::vector<float> plain = constants_[i].values();
      for (const std::vector<float>& have : {plain, plus_one(plain)}) {
        for (const std::vector<float>& want : wanted) {
          const double at = distance(have, want);
          if (at < best.distance) best = {at, i, have, want};
        }
      }
    }
    return best;
  }

  void add_changed(const WeightRows& weight, const Changed& changed) {
    const ProgramVector& constant = constants_[changed.constant];
    const std::vector<float> want = rounded(changed.want, constant.dtype);
    size_t wrong = 0, first = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      if (changed.have[i] != want[i] && wrong++ == 0) first = i;
    }
    out_.different.push_back(
        fmt::format("{} ({}): {} of {} values differ, first in element {}: {:.6g} for {:.6g}",
                    quoted(weight.name), constant.place, wrong, want.size(), first,
                    changed.have[first], want[first]));
  }

  // Layers are executed one after the other. Vectors of equal values have no order.
  void check_order() {
    std::map<std::string, std::map<int64_t, size_t>> kinds;
    for (const auto& [name, constant] : found_) {
      if (layer_of(name) >= 0) kinds[kind_of(name)].emplace(layer_of(name), constant);
    }
    for (const auto& [kind, layers] : kinds) {
      std::set<size_t> distinct;
      for (const auto& [layer, constant] : layers) distinct.insert(constant);
      if (distinct.size() < layers.size()) continue;
      for (auto next = layers.begin(), at = next; at != layers.end(); at = next) {
        if (++next == layers.end() || next->second >= at->second) continue;
        out_.different.push_back(fmt::format("{} of layer {} is read before that of layer {} ({})",
                                             quoted(kind), next->first, at->first,
                                             constants_[next->second].place));
      }
    }
  }

  const std::vector<ProgramVector>& constants_;
  const plan::Conversion& layers_;
  const std::vector<WeightRows> weights_;
  std::set<DType> dtypes_;
  std::map<Key, size_t> plain_;            // the first constant with these values
  std::map<std::string, size_t> shifted_;  // the same, of the values plus 1
  std::map<std::string, size_t> found_;    // by name of the weight
  std::set<size_t> taken_;                 // constants that are a weight
  std::map<std::string, Count> kinds_;
  MatchedVectors out_;
};

}  // namespace

Result<MatchedVectors> match_vectors(const std::vector<ProgramVector>& constants,
                                     const plan::Conversion& layers) {
  return VectorMatcher(constants, layers).run();
}

}  // namespace ferry::proof
