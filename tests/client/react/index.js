// What React promises of useSyncExternalStore, without a document: https://react.dev/reference/react/useSyncExternalStore
let rendering = null;

/** Mount a component; `values` are what it returned, and `unmount` ends it. */
export function mount(component) {
  const mounted = { values: [], subscribe: null, leave: null };
  mounted.render = () => {
    rendering = mounted;
    mounted.values.push(component());
    rendering = null;
  };
  mounted.unmount = () => mounted.leave();
  mounted.render();
  return mounted;
}

export function useSyncExternalStore(subscribe, getSnapshot) {
  const mounted = rendering;
  const value = getSnapshot();
  if (!Object.is(value, getSnapshot())) throw new Error("The result of getSnapshot should be cached.");
  if (mounted.subscribe !== subscribe) {
    mounted.leave?.();
    mounted.subscribe = subscribe;
    mounted.leave = subscribe(() => Object.is(getSnapshot(), mounted.values.at(-1)) || mounted.render());
  }
  return value;
}
