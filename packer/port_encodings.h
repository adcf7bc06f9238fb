// What the codes of quantised ports stand for, as the program itself says: in the operator that
// decodes an input or encodes an output, and in ExecuTorch's constant methods.
#pragma once

#include <string>

#include "core/result.h"
#include "formats/pte/program.h"
#include "packer/manifest.h"
#include "packer/stated_values.h"

namespace ferry::packer {

// Sets the encoding of every port of u8 and u16 of a static text decoder, whose ports have their
// names and are those of `method`. Keys and values are in the order of their outputs, keys first.
// kBadInput, with file, method and port, where nothing states an encoding, where two statements
// differ, and where codes do not span their dtype.
Status set_port_encodings(const pte::Method& method, const StatedValues& stated,
                          ManifestMethod& ports);

}  // namespace ferry::packer
