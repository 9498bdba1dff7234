// The headers as C++11, each by itself first.
#include <onstream/dlpack.h>
#include <onstream/launch.h>
#include <onstream/module.h>
#include <onstream/onstream.h>
#include <onstream/runtime.h>
#include <onstream/status.h>
#include <onstream/version.h>

#include <cstring>

int main() {
  ons_error error = ONS_ERROR_INIT;
  ons_runtime_options options = ONS_RUNTIME_OPTIONS_INIT;
  ons_module_options module_options = ONS_MODULE_OPTIONS_INIT;
  ons_launch launch = ONS_LAUNCH_INIT;
  ons_launch_plan plan = ONS_LAUNCH_PLAN_INIT;
  ons_runtime* runtime = nullptr;
  if (ons_runtime_create(&options, &runtime, &error) != ONS_STATUS_OK) return 1;
  ons_runtime_release(runtime);
  const bool sized = options.struct_size == sizeof options &&
                     module_options.struct_size == sizeof module_options &&
                     launch.struct_size == sizeof launch &&
                     plan.struct_size == sizeof plan;
  return !sized || std::strcmp(ons_status_name(ONS_STATUS_ORDER), "ORDER") != 0;
}
