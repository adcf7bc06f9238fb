// Dimensions with the names of their axes, for shapes of weights, caches and views.
#pragma once

#include "converters/blocks/graph_names.h"

namespace ferry::converters {

inline Dim batch() { return Dim(1).as(graph::Axis::kBatch); }
inline Dim positions(Dim count) { return count.as(graph::Axis::kSequence); }
inline Dim heads(Dim count) { return count.as(graph::Axis::kHead); }
inline Dim head_dim(Dim size) { return size.as(graph::Axis::kHeadDim); }
inline Dim features(Dim count) { return count.as(graph::Axis::kFeature); }
inline Dim experts(Dim count) { return count.as(graph::Axis::kExpert); }

}  // namespace ferry::converters
