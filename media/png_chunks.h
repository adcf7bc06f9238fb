// Reads the chunks of a PNG file that are not its pixels (private to media/).
#pragma once

#include <string>
#include <string_view>

#include "media/codecs.h"

namespace ferry::media {

struct PngNotes {
  Bytes exif;           // of the last chunk eXIf
  std::string profile;  // EXIF that is written as text
  std::string xmp;
  Bytes transparency;        // of the chunk tRNS
  std::string_view refusal;  // why the file is not supported; empty if it is
  int packed_texts = 0;

  void take_text(std::string_view tag, std::string_view data);
};

// Reads the chunks that Pillow reads to show a file: of an animation those before its second frame.
PngNotes notes_of(Bytes file);
int orientation_of(const PngNotes& notes);

}  // namespace ferry::media
