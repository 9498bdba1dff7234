/* Compiles a source into a bundle: `onstream build` for builds without Python.
 *
 * usage: onstream-bundle SOURCE -a ARCH... [-k KERNEL...] [--source] -o FILE [-- OPTION...] */
#include <errno.h>
#include <onstream/onstream.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct arguments {
  const char* source;
  const char* output;
  ons_bundle_options bundle;
  ons_module_options module;
} arguments;

static const char usage[] =
    "usage: onstream-bundle SOURCE -a ARCH... [-k KERNEL...] [--source] -o FILE "
    "[-- OPTION...]\n"
    "  -a ARCH     sm_NN, compute_NN (PTX), x86-64, x86-64-v2, -v3, -v4, aarch64\n"
    "  -k KERNEL   an instance of a template, on top of the plain kernels\n"
    "  --source    put the source in, to compile what is missing\n"
    "  OPTION      of the compiler, -DNAME=VALUE, -IDIR\n";

/* `lists` has room for all words three times over. */
static int parse(int count, char** words, const char** lists, arguments* out) {
  const char** archs = lists;
  const char** kernels = lists + count;
  out->bundle.architectures = archs;
  out->bundle.kernels = kernels;
  for (int i = 1; i < count; ++i) {
    const char* word = words[i];
    const char* value = i + 1 < count ? words[i + 1] : NULL;
    if (strcmp(word, "--") == 0) {
      out->module.options = (const char* const*)words + i + 1;
      out->module.option_count = (size_t)(count - i - 1);
      break;
    }
    if (strcmp(word, "--source") == 0) {
      out->bundle.flags |= ONS_BUNDLE_SOURCE;
    } else if (strcmp(word, "-a") == 0 && value) {
      archs[out->bundle.architecture_count++] = words[++i];
    } else if (strcmp(word, "-k") == 0 && value) {
      kernels[out->bundle.kernel_count++] = words[++i];
    } else if (strcmp(word, "-o") == 0 && value) {
      out->output = words[++i];
    } else if (word[0] != '-' && !out->source) {
      out->source = word;
    } else {
      return 0;
    }
  }
  return out->source && out->output && out->bundle.architecture_count > 0;
}

static int write_file(const char* path, const ons_blob* bundle) {
  FILE* file = fopen(path, "wb");
  const size_t size_bytes = ons_blob_size_bytes(bundle);
  int good = file && fwrite(ons_blob_data(bundle), 1, size_bytes, file) == size_bytes;
  if (file && fclose(file) != 0) good = 0;
  if (!good) {
    fprintf(stderr, "onstream-bundle: %s: %s\n", path, strerror(errno));
    remove(path);
  }
  return good;
}

int main(int count, char** words) {
  arguments given = {.bundle = ONS_BUNDLE_OPTIONS_INIT, .module = ONS_MODULE_OPTIONS_INIT};
  const char** lists = calloc(2 * (size_t)count + 1, sizeof(*lists));
  if (!lists || !parse(count, words, lists, &given)) {
    fputs(usage, stderr);
    free(lists);
    return 2;
  }
  ons_error error = ONS_ERROR_INIT;
  ons_runtime* runtime = NULL;
  ons_module* module = NULL;
  ons_blob *bundle = NULL, *log = NULL;
  ons_status status = ons_runtime_create(NULL, &runtime, &error);
  if (!status) {
    status = ons_module_create_from_file(runtime, given.source, &given.module, &module,
                                         &error);
  }
  if (!status) status = ons_module_bundle(module, &given.bundle, &bundle, &log, &error);
  if (log) fputs(ons_blob_data(log), stderr);
  if (status) fprintf(stderr, "onstream-bundle: %s\n", error.message);
  const int good = !status && write_file(given.output, bundle);
  ons_blob_release(log);
  ons_blob_release(bundle);
  ons_module_release(module);
  ons_runtime_release(runtime);
  free(lists);
  return good ? 0 : 1;
}
