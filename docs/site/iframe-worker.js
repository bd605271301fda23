// Browsers refuse a Worker to a page that was opened from a disk. The search then runs in a hidden frame of the page.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.appendChild(this.frame)
      const inner = this.frame.contentWindow
      this.ready = new Promise(resolve => { inner.__ready = resolve })
      inner.__answer = data => {
        const event = new MessageEvent("message", { data })
        this.dispatchEvent(event)
        if (this.onmessage) this.onmessage(event)
      }
      inner.document.open()
      inner.document.write(
        "<script>var __index = parent.__index; postMessage = data => __answer(data)</" + "script>" +
        "<script src='" + url + "' onload='__ready()'></" + "script>"
      )
      inner.document.close()
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })))
    }
    terminate() {
      this.frame.remove()
    }
  }
}
