# Writes the version of these sources into a header, unless the header has this version already:
#   cmake -DSOURCE=DIR -DVERSION=X.Y.Z -DHEADER=FILE -P build_version.cmake
# Every build runs this script, so that the version follows commits without a new configuration.
#   X.Y.Z                  the commit with the tag vX.Y.Z, or sources without a repository
#   X.Y.Z+COMMIT           another commit, by its first 12 digits
#   X.Y.Z+COMMIT.modified  files under version control differ from the commit
#   X.Y.Z+unknown          git cannot read the repository
set(version ${VERSION})
if(EXISTS ${SOURCE}/.git)
  # Git refuses repositories of other owners. The build runs code from this one anyway.
  set(git git -c safe.directory=* -C ${SOURCE})
  set(ENV{GIT_OPTIONAL_LOCKS} 0)
  execute_process(COMMAND ${git} describe --always --dirty=.modified --abbrev=12 --exclude=*
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed
                  ERROR_QUIET)
  execute_process(COMMAND ${git} tag --points-at HEAD --list v${VERSION}
                  OUTPUT_VARIABLE tag OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(failed OR NOT commit MATCHES "^[0-9a-f]+(.modified)?$")
    set(version ${VERSION}+unknown)
  elseif(NOT tag OR commit MATCHES "modified")
    set(version ${VERSION}+${commit})
  endif()
endif()
set(text "// Made by cmake/build_version.cmake.
#pragma once
#include <string_view>
namespace ferry {
inline constexpr std::string_view kBuildVersion = \"${version}\";
}  // namespace ferry
")
set(old)
if(EXISTS ${HEADER})
  file(READ ${HEADER} old)
endif()
if(NOT text STREQUAL old)
  file(WRITE ${HEADER} "${text}")
endif()
