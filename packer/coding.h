// Coding: what of a bundle is quantised, as far as it decides how far outputs may be from those of
// the values before. docs/verifying.md says how the floors were measured.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "packer/bundle_reader.h"

namespace ferry::packer {

struct Coding {
  // The fewest bits of a matrix of a product; 0: none is quantised.
  int bits = 0;
  int64_t group = 0;     // elements that share a scale, the most of those matrices; 0: a row
  bool dynamic = false;  // activations are quantised to 8 bits before any of them
  // Bits of the embedding tables; 0: they are not quantised.
  int table_bits = 0;

  bool operator==(const Coding&) const = default;
};

// Whether `--quantize-embedding` is about the weight of this name.
bool is_embedding_table(std::string_view name);

// Keys that programs read as tensors, and not delegates alone.
std::set<std::string> tensor_keys(const Bundle& bundle);

// None where nothing is quantised. `roles`: of the components that count.
std::optional<Coding> coding_of(const Bundle& bundle, std::span<const std::string_view> roles);
// "8da4w-g32, embedding 4"
std::string name_of(const Coding& coding);

// The least signal-to-noise ratio, in dB, of tensors of the first layers. Against the model before
// quantisation:
double coded_floor_db(const Coding& coding, bool delta_rule);
// Against the same codes with activations in f32. None where activations are not quantised.
std::optional<double> activation_floor_db(const Coding& coding, bool delta_rule);

}  // namespace ferry::packer
