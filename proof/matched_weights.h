// MatchedWeights finds the checkpoint's weights among the matrices of a program of another tool, by
// their values, and compares every value. Outputs alone say little of a quantised program.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/bundle_reader.h"
#include "plan/conversion.h"
#include "proof/loaded_part.h"
#include "proof/matched_vectors.h"
#include "proof/program_constants.h"
#include "proof/progress.h"
#include "proof/weight_rows.h"

namespace ferry::proof {

// Where rows of a weight are in a matrix of the program.
struct MatchedPlace {
  int64_t begin = 0, rows = 0;  // rows of the weight
  size_t matrix = 0;            // index into the program's matrices
  int64_t first = 0;            // row of the matrix that is row `begin` of the weight
  RowOrder order = {};

  int64_t row_of(int64_t row) const;
};

class MatchedWeights {
 public:
  // `layers` is planned by plan_f32_layers(), for the model `config`. Both and the bundle must
  // outlive the result.
  static Result<MatchedWeights> find(const packer::Bundle& bundle, const plan::Conversion& layers,
                                     ThreadPool& pool, const Progress& progress);

  // Returns a reader of the program's values, and of the checkpoint's for weights that no matrix of
  // the program is like. It must not outlive this object.
  ReadWeight reader() const;

  uint64_t weights() const { return weights_; }          // matrices of the model
  uint64_t found() const { return places_.size(); }      // those that the program has
  uint64_t coded() const { return coded_; }              // those among them that are codes
  uint64_t values() const { return values_; }            // compared values
  uint64_t bytes() const { return bytes_; }              // of these values or codes, without scales
  uint64_t vectors() const { return vectors_.vectors; }  // weights of one dimension
  uint64_t found_vectors() const { return vectors_.found; }  // those that the program has
  // One line for each weight that differs: a value further away than half a step of its code, or
  // another value where there are no codes; a matrix that is like no weight; layers in another
  // order.
  const std::vector<std::string>& different() const { return different_; }
  // Why the program cannot be held to its own weights; otherwise empty.
  const std::string& undecided() const { return undecided_; }

 private:
  friend class WeightMatcher;
  MatchedWeights() = default;

  const TensorSource* source_ = nullptr;
  std::vector<ProgramMatrix> matrices_;
  // By name of the weight: one place, or several that have its rows in order.
  std::map<std::string, std::vector<MatchedPlace>> places_;
  uint64_t weights_ = 0, coded_ = 0, values_ = 0, bytes_ = 0;
  MatchedVectors vectors_;
  std::vector<std::string> different_;
  std::string undecided_;
};

}  // namespace ferry::proof
