// Includes the whole library. docs/library.md describes the library with an example.
#pragma once

#include <ferry/adapters.h>
#include <ferry/bundle.h>
#include <ferry/convert.h>
#include <ferry/embed.h>
#include <ferry/engine.h>
#include <ferry/generate.h>
#include <ferry/inspect.h>
#include <ferry/result.h>
#include <ferry/sign.h>
#include <ferry/sound.h>
#include <ferry/text.h>
#include <ferry/transcribe.h>
#include <ferry/verify.h>
